#include "pacing.hpp"

#include <algorithm>
#include <cmath>

namespace gpulift {
namespace {

constexpr int kRehearsals = 8;  // two find a full hold, two that it is too short; then what fits, and two to spare

}  // namespace

Pacing::Pacing(const std::vector<ArmRunner*>& runners, const std::vector<Clock>& clocks, const SamplingPlan& plan,
               std::vector<ArmSamples>& arms)
    : runners_(runners), clocks_(clocks), plan_(plan), arms_(arms), step_s_(runners.size()), taken_s_(runners.size()) {}

void Pacing::calibrate(std::size_t arm, const std::function<void(const std::string&)>& tell) {
  const double start_s = now_s();
  std::int64_t steps = 1;
  double step_s = 0;
  runners_[arm]->run(0, 1);  // may load code: its time is not used
  if (now_s() - start_s > kBetweenSigns_s) tell("calibrating arm " + std::to_string(arm + 1) + ", which takes long");
  for (;;) {
    const double window_s = std::max(1e-9, judged_s(runners_[arm]->run(0, steps), clocks_[arm]));
    step_s = window_s / static_cast<double>(steps);
    const std::int64_t most = std::min(kMaxSteps, runners_[arm]->max_steps());
    if (window_s >= plan_.window_s / 4 || steps >= most) break;
    const double wanted = plan_.window_s / 2 / step_s;
    steps = std::min(most, std::clamp(static_cast<std::int64_t>(wanted), 2 * steps, 16 * steps));
  }
  set_steps(arm, step_s);
}

void Pacing::set_steps(std::size_t arm, double step_s) {
  auto& samples = arms_[arm];
  const std::int64_t most = std::min(kMaxSteps, runners_[arm]->max_steps());
  step_s_[arm] = step_s;
  samples.steps_per_window =
      std::clamp(static_cast<std::int64_t>(std::ceil(1.05 * plan_.window_s / step_s)), std::int64_t{1}, most);
  samples.lead_in_steps = 0;
  if (runners_[arm]->begins_afresh()) return;
  const std::int64_t least = runners_[arm]->least_lead_in();
  const bool is_long = clocks_[arm] == Clock::kHost && step_s > plan_.window_s / 2;
  samples.lead_in_steps = least;
  if (is_long) return;
  samples.lead_in_steps = std::clamp(static_cast<std::int64_t>(std::ceil(plan_.lead_in_s / step_s)),
                                     std::max(least, std::int64_t{1}), std::max(least, most));
}

Window Pacing::warm_up(std::size_t arm, double& fastest_step_s) {
  const double until_s = now_s() + plan_.warm_up_s;
  Window window;
  do {
    const auto& samples = arms_[arm];
    const std::int64_t steps = std::max({std::int64_t{1}, samples.lead_in_steps, samples.steps_per_window / 4});
    const double start_s = now_s();
    window = runners_[arm]->run(0, std::min(steps, runners_[arm]->max_steps()));
    taken_s_[arm] = runners_[arm]->begins_afresh() ? now_s() - start_s : 0;
    fastest_step_s = std::min(fastest_step_s, pace_s(arm, window, steps));
    set_steps(arm, fastest_step_s);
  } while (now_s() < until_s);
  return window;
}

void Pacing::rehearse() {
  if (plan_.warm_up_limit_s > 0) return;
  for (std::size_t arm = 0; arm < runners_.size(); ++arm) {
    for (int i = 0; i < kRehearsals && clocks_[arm] == Clock::kDevice; ++i) {
      const std::int64_t steps = arms_[arm].steps_per_window;
      const Window window = runners_[arm]->run(arms_[arm].lead_in_steps, steps);
      if (window.held) break;
      set_steps(arm, pace_s(arm, window, steps));
    }
  }
}

std::vector<double> Pacing::times_s() const {
  std::vector<double> times_s = step_s_;
  for (std::size_t arm = 0; arm < times_s.size(); ++arm) times_s[arm] = std::max(times_s[arm], taken_s_[arm]);
  return times_s;
}

/// Seconds per step.
double Pacing::pace_s(std::size_t arm, const Window& window, std::int64_t steps) const {
  return std::max(1e-9, judged_s(window, clocks_[arm])) / static_cast<double>(steps);
}

}  // namespace gpulift
