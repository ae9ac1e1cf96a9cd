#include "hold_capacity.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/harness/sampler.hpp"

namespace gpulift {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
constexpr double kStep_s = 1e-5;

/// A window longer than what is held, in which the host was slower than the device.
bool run_dry(HoldCapacity& capacity) { return capacity.saw_release(256, 1000, 2 * kStep_s, kStep_s); }
/// The same, and the host was far faster.
bool run_full(HoldCapacity& capacity) { return capacity.saw_release(256, 1000, kStep_s / 10, kStep_s); }

TEST(HoldCapacity, HoldsWholeWindowsAndLeadInsAsLongAsTheyFit) {
  const HoldCapacity capacity;
  EXPECT_TRUE(capacity.can_hold());
  const auto fits = capacity.split(10, 100);
  EXPECT_EQ(fits.lead_in_steps, 10);
  EXPECT_EQ(fits.steps, 100);
  const auto longer = capacity.split(1000, 1000);
  EXPECT_EQ(longer.lead_in_steps, 256);
  EXPECT_EQ(longer.steps, 256);
}

TEST(HoldCapacity, OneTimeOutWithNothingQueuedIsNoReasonToHoldNoMore) {
  HoldCapacity capacity;
  capacity.saw_time_out(0);
  EXPECT_TRUE(capacity.can_hold());
  EXPECT_EQ(capacity.split(0, 100).steps, 100);
  EXPECT_TRUE(capacity.saw_release(100, 100, kStep_s, kStep_s));
  capacity.saw_time_out(0);
  EXPECT_TRUE(capacity.can_hold()) << "a window was held in between";
}

TEST(HoldCapacity, TwoTimeOutsInARowShrinkItToTheMostThatWasQueued) {
  HoldCapacity capacity;
  capacity.saw_time_out(5);
  capacity.saw_time_out(3);
  const auto split = capacity.split(100, 100);
  EXPECT_EQ(split.lead_in_steps, 2);
  EXPECT_EQ(split.steps, 3);
}

TEST(HoldCapacity, AtLeastHalvesEachTime) {
  HoldCapacity capacity;
  for (int i = 0; i < 2; ++i) capacity.saw_time_out(500);  // the last of them too late to tell
  EXPECT_EQ(capacity.split(0, 1000).steps, 256);
  capacity.saw_time_out(500);
  EXPECT_EQ(capacity.split(0, 1000).steps, 256) << "the two are counted anew";
  capacity.saw_time_out(500);
  EXPECT_EQ(capacity.split(0, 1000).steps, 128);
}

TEST(HoldCapacity, AnArmThatWaitsForTheDeviceByItselfIsNotHeldInTheEnd) {
  HoldCapacity capacity;
  for (int i = 0; i < 2; ++i) capacity.saw_time_out(0);
  EXPECT_FALSE(capacity.can_hold());
  EXPECT_EQ(capacity.split(10, 10).steps, 0);
  EXPECT_EQ(capacity.max_steps(), kNoLimit);
}

TEST(HoldCapacity, SaysWhetherTheDeviceEverWaited) {
  HoldCapacity capacity;
  EXPECT_TRUE(capacity.saw_release(256, 256, 2 * kStep_s, kStep_s)) << "all of it was queued";
  EXPECT_FALSE(run_dry(capacity));
  EXPECT_TRUE(run_full(capacity));
}

TEST(HoldCapacity, OneWindowThatRanDryDoesNotLimitTheNext) {
  HoldCapacity capacity;
  run_dry(capacity);
  EXPECT_EQ(capacity.max_steps(), kNoLimit);
  run_full(capacity);
  run_dry(capacity);
  EXPECT_EQ(capacity.max_steps(), kNoLimit) << "one in between did not";
  run_dry(capacity);
  EXPECT_EQ(capacity.max_steps(), 256);
}

TEST(HoldCapacity, TheLimitIsWhatFitsBehindTheLongestLeadIn) {
  HoldCapacity capacity;
  for (int i = 0; i < 2; ++i) run_dry(capacity);
  for (int i = 0; i < 2; ++i) capacity.saw_time_out(5);
  EXPECT_EQ(capacity.max_steps(), 3);
}

TEST(HoldCapacity, TheLimitGoesWhenTwoWindowsInARowShowThatTheHostKeepsUp) {
  HoldCapacity capacity;
  for (int i = 0; i < 2; ++i) run_dry(capacity);
  capacity.saw_release(256, 256, kStep_s / 10, kStep_s);
  EXPECT_EQ(capacity.max_steps(), 256);
  capacity.saw_release(256, 256, kStep_s / 10, kStep_s);
  EXPECT_EQ(capacity.max_steps(), kNoLimit);
}

TEST(HoldCapacity, AHostThatBarelyKeepsUpDoesNotEndTheLimit) {
  HoldCapacity capacity;
  for (int i = 0; i < 2; ++i) run_dry(capacity);
  for (int i = 0; i < 5; ++i) capacity.saw_release(256, 256, 0.85 * kStep_s, kStep_s);
  EXPECT_EQ(capacity.max_steps(), 256);
}

/// An arm whose launch queue ends after so many steps, on a host that is disturbed in the windows of the given numbers.
class QueuedArm : public ArmRunner {
 public:
  QueuedArm(std::int64_t fits, double issue_s, std::int64_t disturbed_from, std::int64_t disturbed_to)
      : fits_(fits), issue_s_(issue_s), disturbed_from_(disturbed_from), disturbed_to_(disturbed_to) {}

  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    const bool disturbed = number_ >= disturbed_from_ && number_ < disturbed_to_;
    ++number_;
    const auto [held_lead_in, held] = capacity_.split(lead_in_steps, steps);
    const double issue_s = disturbed ? 100 * issue_s_ : issue_s_;
    Window window;
    if (held_lead_in + held > fits_) {
      capacity_.saw_time_out(fits_);
    } else {
      window.held = capacity_.saw_release(held, steps, issue_s, kStep_s);
    }
    window.device_s = static_cast<double>(steps) * (window.held ? kStep_s : std::max(issue_s, kStep_s));
    window.host_s = *window.device_s;
    return window;
  }
  std::int64_t max_steps() const override { return capacity_.max_steps(); }

 private:
  HoldCapacity capacity_;
  std::int64_t fits_;
  double issue_s_;
  std::int64_t disturbed_from_;
  std::int64_t disturbed_to_;
  std::int64_t number_ = 0;
};

Samples sample(QueuedArm& arm) {
  SamplingPlan plan;
  plan.window_s = 10e-3;  // a thousand steps
  plan.lead_in_s = 1e-3;
  plan.warm_up_s = 1e-6;  // of real time
  plan.budget_s = 30;     // of real time; ends as soon as it is precise
  return sample_arms({&arm}, {Clock::kDevice}, false, [&](std::span<const double>) { return plan; }, {});
}

TEST(HoldCapacity, FindsWhatFitsBeforeAnythingIsMeasured) {
  QueuedArm arm(5, 2 * kStep_s, 0, 0);  // steps of hundreds of launches, issued more slowly than they run
  const Samples samples = sample(arm);
  EXPECT_EQ(samples.arms[0].steps_per_window, 3);
  for (const auto& window : samples.arms[0].windows) EXPECT_TRUE(window.held);
}

TEST(HoldCapacity, AHostThatWasDisturbedAtFirstCostsNoWindowItsLength) {
  QueuedArm arm(1000, kStep_s / 10, 0, 12);
  const Samples samples = sample(arm);
  for (const auto& window : samples.arms[0].windows) {
    EXPECT_TRUE(window.held);
    EXPECT_GE(*window.device_s, 10e-3);
  }
}

}  // namespace
}  // namespace gpulift
