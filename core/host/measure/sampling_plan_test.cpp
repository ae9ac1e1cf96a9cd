#include "sampling_plan.hpp"

#include <gtest/gtest.h>

namespace gpulift {
namespace {

constexpr SampledArms kTwoOnDevice{.count = 2, .on_device = true};

Job burst() {
  Job job;
  job.regime = "burst";
  return job;
}

Job whole_steps() {
  Job job = burst();
  job.whole_steps = true;
  return job;
}

RunSettings with_arm_time(double arm_time_s, bool quick = false) {
  RunSettings settings;
  settings.arm_time_s = arm_time_s;
  settings.quick = quick;
  return settings;
}

TEST(SamplingPlan, WindowsOnTheHostAndOfCeilingsAreLonger) {
  const RunSettings settings;
  EXPECT_EQ(sampling_plan(burst(), settings, kTwoOnDevice).window_s, 1e-3);
  EXPECT_EQ(sampling_plan(burst(), settings, {.count = 2}).window_s, 10e-3);
  EXPECT_EQ(sampling_plan(burst(), settings, {.count = 2, .on_device = true, .ceiling = true}).window_s, 10e-3);
}

TEST(SamplingPlan, EveryArmHasTheTimeThatIsAskedFor) {
  EXPECT_DOUBLE_EQ(sampling_plan(burst(), with_arm_time(0.25), kTwoOnDevice).budget_s, 0.5);
}

TEST(SamplingPlan, WindowsHoldSeveralWholeSteps) {
  const SamplingPlan plan = sampling_plan(whole_steps(), with_arm_time(0.25), kTwoOnDevice);
  EXPECT_EQ(plan.window_s, 0.05);
  EXPECT_DOUBLE_EQ(plan.lead_in_s, 0.005);
  EXPECT_DOUBLE_EQ(plan.budget_s, 3.0) << "a step may take a quarter second";
  EXPECT_DOUBLE_EQ(sampling_plan(whole_steps(), with_arm_time(4), kTwoOnDevice).budget_s, 8.0);
}

TEST(SamplingPlan, WindowsAreLongWhereClocksOfHostsAreNotKnownWell) {
  const SampledArms near{.count = 2, .clock_error_s = 1e-6};
  EXPECT_EQ(sampling_plan(burst(), {}, near).window_s, sampling_plan(burst(), {}, {.count = 2}).window_s);
  const SamplingPlan plan = sampling_plan(burst(), {}, {.count = 2, .clock_error_s = 1e-3});
  EXPECT_GT(plan.window_s, 1e-3 / kLargestClockError);
  EXPECT_DOUBLE_EQ(plan.lead_in_s, plan.window_s / 10);
}

TEST(SamplingPlan, WholeStepsThatEventsJudgeHaveShortWindows) {
  const SampledArms arms{.count = 2, .on_device = true, .by_events = true};
  for (const bool quick : {false, true}) {
    EXPECT_EQ(sampling_plan(whole_steps(), with_arm_time(0.2, quick), arms).window_s, 0.01);
  }
}

TEST(SamplingPlan, QuickWholeStepsKeepToTheirTime) {
  const SamplingPlan plan = sampling_plan(whole_steps(), with_arm_time(0.2, true), kTwoOnDevice);
  EXPECT_EQ(plan.window_s, 0.02);
  EXPECT_DOUBLE_EQ(plan.budget_s, 0.4);
}

TEST(SamplingPlan, SustainedWindowsAreLongAndFew) {
  Job job = burst();
  job.regime = "sustained";
  const SamplingPlan plan = sampling_plan(job, RunSettings{}, kTwoOnDevice);
  EXPECT_EQ(plan.window_s, 1.0);
  EXPECT_EQ(plan.min_blocks, 2);
  EXPECT_GT(plan.warm_up_limit_s, sampling_plan(job, with_arm_time(0.2, true), kTwoOnDevice).warm_up_limit_s);
}

TEST(SamplingPlan, ProductsRestBeforeEachWindowSoThatTheSameOneRunsAtOneClockEverywhere) {
  SampledArms arms{.count = 1, .on_device = true, .ceiling = true, .draws_power = true};
  const SamplingPlan ceiling = sampling_plan(burst(), RunSettings{}, arms);
  EXPECT_GT(ceiling.rest_s, 0);
  EXPECT_LT(ceiling.window_s, 10e-3);
  arms.ceiling = false;
  const SamplingPlan technique = sampling_plan(burst(), RunSettings{}, arms);
  EXPECT_EQ(technique.rest_s, ceiling.rest_s);
  EXPECT_EQ(technique.window_s, ceiling.window_s);
  EXPECT_EQ(sampling_plan(whole_steps(), RunSettings{}, arms).rest_s, 0) << "they have the clock of a training";
  Job duet = burst();
  duet.base_module = "base";
  EXPECT_EQ(sampling_plan(duet, RunSettings{}, arms).rest_s, 0) << "its error rates were certified without";
}

TEST(SamplingPlan, QuickTakesHalfOfTheBlocksBetweenRests) {
  SampledArms arms{.count = 6, .on_device = true, .ceiling = true, .draws_power = true};
  const SamplingPlan whole = sampling_plan(burst(), RunSettings{}, arms);
  const SamplingPlan quick = sampling_plan(burst(), with_arm_time(0.2, true), arms);
  EXPECT_EQ(2 * quick.min_blocks, whole.min_blocks);
  EXPECT_DOUBLE_EQ(2 * quick.budget_s, whole.budget_s);
  arms.ceiling = false;
  EXPECT_EQ(sampling_plan(burst(), with_arm_time(0.2, true), arms).min_blocks, whole.min_blocks)
      << "only ceilings are measured for what they reach";
}

TEST(SamplingPlan, LongStepsHaveFourBlocksAndTheTimeForThem) {
  const std::vector<double> step_s{0.1, 0.4};
  const SamplingPlan plan = sampling_plan(burst(), with_arm_time(0.3), {.count = 2, .step_s = step_s});
  EXPECT_EQ(plan.min_blocks, 4);
  EXPECT_DOUBLE_EQ(plan.budget_s, 4 * 2 * 0.5);
  EXPECT_DOUBLE_EQ(plan.limit_s, 3 * plan.budget_s);
}

TEST(SamplingPlan, ArmsThatRestAreVisitedButInDuetsAndSustained) {
  EXPECT_TRUE(sampling_plan(whole_steps(), {}, {.count = 2, .rest = true}).visits);
  EXPECT_FALSE(sampling_plan(whole_steps(), {}, kTwoOnDevice).visits);
  Job duet = whole_steps();
  duet.base_module = "elsewhere.so";
  EXPECT_FALSE(sampling_plan(duet, {}, {.count = 2, .rest = true}).visits);
  Job sustained;
  sustained.regime = "sustained";
  EXPECT_FALSE(sampling_plan(sustained, {}, {.count = 2, .rest = true}).visits);
}

TEST(SamplingPlan, NoCaseOfLongStepsTakesMoreThanAMinuteOfWindows) {
  const std::vector<double> step_s{5, 10};
  const SamplingPlan plan = sampling_plan(burst(), with_arm_time(0.3), {.count = 2, .step_s = step_s});
  EXPECT_EQ(plan.budget_s, 60);
  EXPECT_EQ(plan.limit_s, 60);
  EXPECT_TRUE(plan.limits_windows);
  const SamplingPlan asked = sampling_plan(burst(), with_arm_time(100), {.count = 2, .step_s = step_s});
  EXPECT_EQ(asked.limit_s, 200) << "unless the user asked for more";
}

TEST(SamplingPlan, ShortStepsChangeNothing) {
  const std::vector<double> step_s{1e-5, 4e-3};
  const SamplingPlan plan = sampling_plan(burst(), with_arm_time(0.3), {.count = 2, .step_s = step_s});
  EXPECT_EQ(plan.min_blocks, 8);
  EXPECT_DOUBLE_EQ(plan.budget_s, 0.6);
  EXPECT_DOUBLE_EQ(plan.limit_s, 3 * 0.6);
}

}  // namespace
}  // namespace gpulift
