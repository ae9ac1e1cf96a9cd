#include "sampling_plan.hpp"

#include <algorithm>
#include <numeric>

namespace gpulift {
namespace {

constexpr double kWholeStepTime_s = 1.5;  // per arm and launch, unless more is asked: a step may take a quarter second
constexpr double kOverrun = 3.0;          // the minimum of blocks yields when the budget is exceeded this much
constexpr int kLongBlocks = 4;
constexpr double kLongestCase_s = 60;
constexpr double kClockSlack = 2;  // a later round trip between hosts may be longer than those of the calibration

/// A block has two windows of each arm.
void fit_to_long_steps(SamplingPlan& plan, std::span<const double> step_s) {
  const bool is_long =
      std::any_of(step_s.begin(), step_s.end(), [&](double arm_s) { return arm_s > plan.window_s / 2; });
  if (!is_long) return;
  plan.min_blocks = std::min(plan.min_blocks, kLongBlocks);
  const double block_s = 2 * std::accumulate(step_s.begin(), step_s.end(), 0.0);
  plan.budget_s = std::max(plan.budget_s, std::min(plan.min_blocks * block_s, kLongestCase_s));
  plan.limit_s = std::max(plan.budget_s, std::min(kOverrun * plan.budget_s, kLongestCase_s));
  plan.limits_windows = true;
}

SamplingPlan plan_of_short_steps(const Job& job, const RunSettings& settings, const SampledArms& arms) {
  const double count = static_cast<double>(arms.count);
  SamplingPlan plan;
  plan.precision = settings.precision;
  if (job.regime == "sustained") {
    // Arms that draw different power inherit each other's heat: each window has a lead-in of its own arm.
    plan.window_s = 1.0;
    plan.lead_in_s = 0.5;
    plan.warm_up_s = 0.3;
    plan.warm_up_limit_s = settings.quick ? 4.0 : 20.0;
    plan.min_blocks = settings.quick ? 1 : 2;
    // Half of what the least number of blocks takes: they are taken, no more, and disturbed ones end it in time.
    plan.budget_s = plan.min_blocks * count * (plan.window_s + plan.lead_in_s);
    return plan;
  }
  plan.window_s = arms.ceiling || !arms.on_device ? 10e-3 : 1e-3;
  plan.lead_in_s = plan.window_s / 10;
  plan.warm_up_s = std::max(plan.window_s, 5e-3);
  plan.budget_s = settings.arm_time_s * count;
  if (job.whole_steps) {
    // Short windows pair best, since the host's pace wanders within a tenth of a second. On the wall clock they have
    // several steps, so that the device's emptying at their end is a small part even where launches bound (seen: 1.2 ms
    // behind steps of 6 ms, so that windows of two steps change the ratio of two optimizers by 5 %).
    plan.window_s = arms.by_events ? 0.01 : settings.quick ? 0.02 : 0.05;
    plan.lead_in_s = plan.window_s / 10;
    if (!settings.quick) plan.budget_s = std::max(settings.arm_time_s, kWholeStepTime_s) * count;
    return plan;
  }
  // Shorter windows after rests: the power cap answers within milliseconds and would make a burst a sustained load. Not
  // in duets, whose error rates were certified without: both sides run at the same pace.
  if (arms.draws_power && !job.is_duet()) {
    plan.window_s = 3e-3;
    plan.lead_in_s = plan.window_s / 10;
    plan.rest_s = 0.05;
    if (settings.quick && arms.ceiling) plan.min_blocks = 4;  // rests make them the longest of all quick cases
    plan.budget_s = plan.min_blocks * 2 * count * (plan.rest_s + plan.window_s + plan.lead_in_s);
  }
  return plan;
}

}  // namespace

SamplingPlan sampling_plan(const Job& job, const RunSettings& settings, const SampledArms& arms) {
  SamplingPlan plan = plan_of_short_steps(job, settings, arms);
  if (const double least_s = kClockSlack * arms.clock_error_s / kLargestClockError; least_s > plan.window_s) {
    plan.window_s = least_s;
    plan.lead_in_s = plan.window_s / 10;
  }
  plan.limit_s = kOverrun * plan.budget_s;
  if (job.regime == "sustained") return plan;
  plan.visits = arms.rest && !job.is_duet();  // whose error rates were certified without
  fit_to_long_steps(plan, arms.step_s);
  return plan;
}

}  // namespace gpulift
