#include "sampler.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "stop_rule.hpp"

namespace gpulift {
namespace {

/// A clock that only windows advance, and what happens to the machine as it passes.
struct SimulatedMachine {
  double now_s = 0;
  double drift_per_s = 0;  // relative slowing per second, linear
  double noise = 0;        // relative standard deviation of a window
  std::mt19937_64 random{1};
};

/// An arm of a known step time on such a machine. Takes no real time.
class SimulatedArm : public ArmRunner {
 public:
  SimulatedArm(SimulatedMachine& machine, double step_s) : machine_(machine), step_s_(step_s) {}

  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    advance(lead_in_steps);
    Window window;
    window.start_s = machine_.now_s;
    std::normal_distribution<double> deviation(1, machine_.noise);
    window.host_s = advance(steps) * (machine_.noise > 0 ? deviation(machine_.random) : 1);
    window.device_s = window.host_s / 2;
    calls_.push_back({lead_in_steps, steps});
    return window;
  }

  struct Call {
    std::int64_t lead_in_steps;
    std::int64_t steps;
  };
  const std::vector<Call>& calls() const { return calls_; }

 private:
  // Time of `steps` when each takes step_s * (1 + drift * moment): exact for linear drift at the window's middle.
  double advance(std::int64_t steps) {
    const double calm_s = step_s_ * static_cast<double>(steps);
    const double slowed_s = calm_s * (1 + machine_.drift_per_s * (machine_.now_s + calm_s / 2));
    machine_.now_s += calm_s;
    return slowed_s;
  }

  SimulatedMachine& machine_;
  double step_s_;
  std::vector<Call> calls_;
};

/// A plan that does not look at the steps.
MakePlan fixed(SamplingPlan plan) {
  plan.limit_s = 3 * plan.budget_s;
  return [plan](std::span<const double>) { return plan; };
}

SamplingPlan quick_plan() {
  SamplingPlan plan;
  plan.warm_up_s = 1e-6;  // of real time
  plan.budget_s = 30;     // of real time; the tests end otherwise
  return plan;
}

/// The logarithm of arm 1 over arm 0 in each block.
std::vector<double> block_log_ratios(const Samples& samples) {
  std::vector<double> ratios;
  for (std::size_t block = 0; block < samples.blocks.size(); ++block) {
    double log_ratio = 0;
    for (const std::size_t arm : {0U, 1U}) {
      const auto& one = samples.arms[arm];
      for (const std::size_t turn : {0U, 1U}) {
        const double step_s = one.windows[2 * block + turn].host_s / static_cast<double>(one.steps_per_window);
        log_ratio += (arm == 1 ? 0.5 : -0.5) * std::log(step_s);
      }
    }
    ratios.push_back(log_ratio);
  }
  return ratios;
}

Samples sample_two(ArmRunner& first, ArmRunner& second, const SamplingPlan& plan,
                   const std::function<bool(double, double)>& disturbed = nullptr) {
  return sample_arms({&first, &second}, {Clock::kHost, Clock::kHost}, true, fixed(plan),
                     {.disturbed = disturbed, .tell = {}});
}

TEST(Sampler, FindsTheRatioOfACalmMachineAndStopsAsSoonAsItMay) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 1e-5);
  SimulatedArm slower(machine, 1.25e-5);
  const Samples samples = sample_two(base, slower, quick_plan());
  EXPECT_EQ(samples.stop_reason, StopReason::kPrecise);
  EXPECT_EQ(samples.blocks.size(), 8U);
  EXPECT_EQ(samples.arms[0].windows.size(), 16U);
  for (const double ratio : block_log_ratios(samples)) EXPECT_NEAR(ratio, std::log(1.25), 1e-9);
}

TEST(Sampler, WindowsLastAsLongAsAskedWithALeadIn) {
  SimulatedMachine machine;
  SimulatedArm fast(machine, 3e-7);
  SimulatedArm slow(machine, 5e-3);
  const Samples samples = sample_two(fast, slow, quick_plan());
  for (const auto& window : samples.arms[0].windows) {
    EXPECT_GE(window.host_s, 1e-3);
    EXPECT_LE(window.host_s, 1.2e-3);
  }
  EXPECT_EQ(samples.arms[0].lead_in_steps, std::ceil(1e-4 / 3e-7));
  EXPECT_EQ(samples.arms[1].steps_per_window, 1);
  EXPECT_EQ(samples.arms[1].lead_in_steps, 0);
  EXPECT_EQ(fast.calls().back().steps, samples.arms[0].steps_per_window);
}

TEST(Sampler, LinearDriftCancelsWithinABlock) {
  SimulatedMachine machine;
  machine.drift_per_s = 2;  // 0.2 % from window to window, far more than any throttle
  SimulatedArm base(machine, 1e-5);
  SimulatedArm same(machine, 1e-5);
  SamplingPlan plan = quick_plan();
  plan.lead_in_s = 1e-5;
  const Samples samples = sample_two(base, same, plan);
  // What is left is of second order: the square of the drift within a block.
  for (const double ratio : block_log_ratios(samples)) EXPECT_NEAR(ratio, 0, 1e-4);
}

TEST(Sampler, GoesOnUntilTheIntervalIsNarrowEnough) {
  SimulatedMachine machine;
  machine.noise = 0.02;
  SimulatedArm base(machine, 1e-5);
  SimulatedArm slower(machine, 1.1e-5);
  const Samples samples = sample_two(base, slower, quick_plan());
  EXPECT_EQ(samples.stop_reason, StopReason::kPrecise);
  EXPECT_GT(samples.blocks.size(), 50U);
  ASSERT_TRUE(samples.half_width);
  EXPECT_LE(*samples.half_width, 0.0025);
  EXPECT_NEAR(median(block_log_ratios(samples)), std::log(1.1), 2 * 0.0025);
}

TEST(Sampler, TheBudgetEndsWhatNeverGetsPrecise) {
  SimulatedMachine machine;
  machine.noise = 0.2;
  SimulatedArm base(machine, 1e-5);
  SimulatedArm same(machine, 1e-5);
  SamplingPlan plan = quick_plan();
  plan.budget_s = 0;  // is over at once: how many blocks another one of real time holds is up to the machine
  const Samples samples = sample_arms({&base, &same}, {Clock::kHost, Clock::kHost}, true,
                                      [&](std::span<const double>) { return plan; }, {});
  EXPECT_EQ(samples.stop_reason, StopReason::kBudget);
  EXPECT_EQ(samples.blocks.size(), 8U);
  EXPECT_TRUE(samples.half_width);
}

TEST(Sampler, DropsAndCountsDisturbedBlocks) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 1e-5);
  SimulatedArm slower(machine, 2e-5);
  int looked = 0;
  const auto every_third = [&looked](double from_s, double to_s) {
    EXPECT_LE(from_s, to_s);
    return ++looked % 3 == 0;
  };
  const Samples samples = sample_two(base, slower, quick_plan(), every_third);
  EXPECT_EQ(samples.blocks.size(), 8U);
  EXPECT_EQ(samples.discarded_blocks, looked - 8);
  EXPECT_GT(samples.discarded_blocks, 0);
  EXPECT_EQ(samples.arms[0].windows.size(), 16U);
}

TEST(Sampler, EndsWhenEveryBlockIsDisturbed) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 1e-5);
  SimulatedArm same(machine, 1e-5);
  SamplingPlan plan = quick_plan();
  plan.budget_s = 1e-3;
  const Samples samples = sample_two(base, same, plan, [](double, double) { return true; });
  EXPECT_TRUE(samples.blocks.empty());
  EXPECT_GT(samples.discarded_blocks, 0);
}

TEST(Sampler, SeveralArmsAreAllPrecise) {
  SimulatedMachine machine;
  machine.noise = 0.005;
  SimulatedArm base(machine, 1e-5);
  SimulatedArm second(machine, 2e-5);
  SimulatedArm third(machine, 3e-5);
  const Samples samples =
      sample_arms({&base, &second, &third}, {Clock::kHost, Clock::kHost, Clock::kHost}, true, fixed(quick_plan()), {});
  EXPECT_EQ(samples.blocks.front().size(), 6U);
  EXPECT_LE(*samples.half_width, 0.0025);
  for (const auto& arm : samples.arms) EXPECT_EQ(arm.windows.size(), 2 * samples.blocks.size());
}

TEST(Sampler, OneArmIsJudgedByItsOwnTime) {
  SimulatedMachine machine;
  SimulatedArm only(machine, 1e-5);
  const Samples samples = sample_arms({&only}, {Clock::kHost}, true, fixed(quick_plan()), {});
  EXPECT_EQ(samples.stop_reason, StopReason::kPrecise);
  EXPECT_EQ(samples.arms[0].windows.size(), 16U);
}

TEST(Sampler, CeilingsAreJudgedByTheirOwnTimes) {
  SimulatedMachine machine;
  machine.drift_per_s = 0.5;  // cancels in a ratio, not in the times themselves
  SimulatedArm base(machine, 1e-5);
  SimulatedArm same(machine, 1e-5);
  SamplingPlan plan = quick_plan();
  plan.budget_s = 1e-3;
  plan.precision = 1e-4;
  const Samples own = sample_arms({&base, &same}, {Clock::kHost, Clock::kHost}, false, fixed(plan), {});
  EXPECT_EQ(own.stop_reason, StopReason::kBudget);
}

TEST(Sampler, UsesTheClockThatJudgesTheArm) {
  SimulatedMachine machine;
  SimulatedArm by_device(machine, 1e-5);  // its device time is half of its host time
  const Samples samples = sample_arms({&by_device}, {Clock::kDevice}, false, fixed(quick_plan()), {});
  for (const auto& window : samples.arms[0].windows) EXPECT_GE(*window.device_s, 1e-3);
}

/// An arm whose windows all take the given time, whatever the steps.
class StuckClock : public ArmRunner {
 public:
  explicit StuckClock(double window_s) : window_s_(window_s) {}
  Window run(std::int64_t, std::int64_t) override {
    Window window;
    window.host_s = window_s_;
    return window;
  }

 private:
  double window_s_;
};

class UselessClock : public testing::TestWithParam<double> {};

TEST_P(UselessClock, IsAnErrorAndNeverAPreciseResult) {
  StuckClock stuck(GetParam());
  EXPECT_THAT([&] { sample_arms({&stuck}, {Clock::kHost}, false, fixed(quick_plan()), {}); },
              testing::ThrowsMessage<std::runtime_error>(testing::HasSubstr("the clock that judges it is of no use")));
}

INSTANTIATE_TEST_SUITE_P(Times, UselessClock,
                         testing::Values(0.0, -1e-3, std::numeric_limits<double>::quiet_NaN(),
                                         std::numeric_limits<double>::infinity()));

TEST(Sampler, ADeviceClockWithoutDeviceTimeIsAnError) {
  StuckClock host_only(1e-3);
  EXPECT_THROW(sample_arms({&host_only}, {Clock::kDevice}, false, fixed(quick_plan()), {}), std::logic_error);
}

TEST(Sampler, RefusesNoArmsAndArmsWithoutClocks) {
  StuckClock arm(1e-3);
  EXPECT_THROW(sample_arms({}, {}, true, fixed(quick_plan()), {}), std::logic_error);
  EXPECT_THROW(sample_arms({&arm}, {}, true, fixed(quick_plan()), {}), std::logic_error);
}

TEST(Sampler, AFailureInAnArmComesThrough) {
  class Failing : public ArmRunner {
    Window run(std::int64_t, std::int64_t) override { throw std::runtime_error("device lost"); }
  } failing;
  EXPECT_THROW(sample_arms({&failing}, {Clock::kHost}, false, fixed(quick_plan()), {}), std::runtime_error);
}

/// A device whose clock falls while it is loaded, from window to window, down to a floor.
class FallingClock : public ArmRunner {
 public:
  Window run(std::int64_t, std::int64_t steps) override {
    hz_ = std::max(1.5e9, hz_ - 20e6);
    Window window;
    window.device_s = static_cast<double>(steps) * 1e4 / hz_;
    window.host_s = *window.device_s;
    window.sm_clock_hz = hz_;
    return window;
  }

 private:
  double hz_ = 1.98e9;
};

/// One whose clock recovers as soon as windows have a lead-in, that is, after the warm-up.
class RecoveringClock : public FallingClock {
 public:
  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    if (lead_in_steps == 0) return FallingClock::run(0, steps);
    Window window;
    window.device_s = static_cast<double>(steps) * 1e4 / 1.8e9;
    window.host_s = *window.device_s;
    return window;
  }
};

TEST(Sampler, IsPlannedWithTheFastestPaceOfTheWarmUp) {
  RecoveringClock arm;
  SamplingPlan plan = quick_plan();
  plan.warm_up_limit_s = 20;
  const Samples samples = sample_arms({&arm}, {Clock::kDevice}, false, fixed(plan), {});
  for (const auto& window : samples.arms[0].windows) EXPECT_GE(window.device_s, plan.window_s);
  EXPECT_EQ(samples.restarts, 0);
}

/// A device that was asleep: steps take a fortieth of the time from the given call on.
class LateWaker : public ArmRunner {
 public:
  explicit LateWaker(int wakes_at) : wakes_at_(wakes_at) {}
  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    if (lead_in_steps > 0) ++windows_;
    Window window;
    window.host_s = static_cast<double>(steps) * (windows_ >= wakes_at_ ? 1e-5 : 4e-4);
    return window;
  }

 private:
  int wakes_at_;
  int windows_ = 0;
};

TEST(Sampler, StartsOverWhenThePaceChangedAndCountsIt) {
  LateWaker arm(6);  // in the third block
  const Samples samples = sample_arms({&arm}, {Clock::kHost}, false, fixed(quick_plan()), {});
  EXPECT_EQ(samples.restarts, 1);
  EXPECT_EQ(samples.discarded_blocks, 0) << "the hardware did not slow down";
  EXPECT_EQ(samples.blocks.size(), 8U);
  for (const auto& window : samples.arms[0].windows) EXPECT_GE(window.host_s, 1e-3);
}

/// Kernels that run faster than they are launched, and a launch queue that ends: at first more is queued than fits,
/// then the device waits for the host, and only then is it known how many steps can be held.
class ShortQueue : public ArmRunner {
 public:
  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    const std::int64_t held_lead_in = std::min(lead_in_steps, queued_ / 2);
    const std::int64_t held = std::min(steps, queued_ - held_lead_in);
    const bool full = held_lead_in + held > kFits;
    Window window;
    window.held = !full && held == steps;
    window.device_s = static_cast<double>(steps) * (window.held ? 3e-4 : 6e-4);
    window.host_s = *window.device_s;
    if (full) queued_ = kFits;
    if (!full && !window.held) max_steps_ = queued_ - queued_ / 2;
    return window;
  }
  std::int64_t max_steps() const override { return max_steps_; }

 private:
  static constexpr std::int64_t kFits = 5;
  std::int64_t queued_ = 512;
  std::int64_t max_steps_ = 1 << 30;
};

TEST(Sampler, FindsTheLongestWindowThatCanBeHeldBeforeItMeasures) {
  ShortQueue arm;
  SamplingPlan plan = quick_plan();
  plan.window_s = 10e-3;
  plan.lead_in_s = 1e-3;
  const Samples samples = sample_arms({&arm}, {Clock::kDevice}, false, fixed(plan), {});
  EXPECT_EQ(samples.arms[0].steps_per_window, 3);
  for (const auto& window : samples.arms[0].windows) EXPECT_TRUE(window.held);
  EXPECT_EQ(samples.restarts, 0);
}

TEST(Sampler, WarmsUpUntilTheClockIsFlat) {
  FallingClock arm;
  SamplingPlan plan = quick_plan();
  plan.warm_up_limit_s = 20;
  const Samples samples = sample_arms({&arm}, {Clock::kDevice}, false, fixed(plan), {});
  for (const auto& window : samples.arms[0].windows) EXPECT_EQ(window.sm_clock_hz, 1.5e9);
}

/// An arm whose windows begin in a state that untimed work makes.
class FreshArm : public SimulatedArm {
 public:
  using SimulatedArm::SimulatedArm;
  std::int64_t max_steps() const override { return 1; }
  bool begins_afresh() const override { return true; }
};

TEST(Sampler, AnArmThatBeginsAfreshHasWindowsOfOneStepAndNoLeadIn) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 1e-5);
  FreshArm cold(machine, 2e-5);
  const Samples samples = sample_two(base, cold, quick_plan());
  EXPECT_EQ(samples.arms[1].steps_per_window, 1);
  EXPECT_EQ(samples.arms[1].lead_in_steps, 0);
  EXPECT_GT(samples.arms[0].lead_in_steps, 0);
  for (const auto& call : cold.calls()) EXPECT_EQ(call.lead_in_steps + call.steps, 1);
}

TEST(Sampler, ALongStepOnTheWallClockHasNoLeadIn) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 1e-4);
  SimulatedArm slow(machine, 6e-4);
  const Samples samples = sample_two(base, slow, quick_plan());
  EXPECT_EQ(samples.arms[0].lead_in_steps, 1);
  EXPECT_EQ(samples.arms[1].lead_in_steps, 0) << "it would take as long as the window";
}

TEST(Sampler, ALongStepByEventsKeepsItsLeadIn) {
  SimulatedMachine machine;
  SimulatedArm slow(machine, 6e-3);
  const Samples samples = sample_arms({&slow}, {Clock::kUnheld}, false, fixed(quick_plan()), {});
  EXPECT_EQ(samples.arms[0].lead_in_steps, 1) << "the host must be ahead of the device when the window begins";
}

/// Untimed work of so much real time ahead of each window.
class Evicting : public FreshArm {
 public:
  using FreshArm::FreshArm;
  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return FreshArm::run(lead_in_steps, steps);
  }
};

TEST(Sampler, ThePlanKnowsTheUntimedWorkAroundWindows) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 1e-5);
  Evicting cold(machine, 2e-5);
  std::vector<double> told_s;
  const auto make_plan = [&](std::span<const double> step_s) {
    told_s.assign(step_s.begin(), step_s.end());
    return quick_plan();
  };
  sample_arms({&base, &cold}, {Clock::kHost, Clock::kHost}, true, make_plan, {});
  ASSERT_EQ(told_s.size(), 2U);
  EXPECT_NEAR(told_s[0], 1e-5, 1e-7);
  EXPECT_GE(told_s[1], 5e-3) << "of which a step is a small part";
}

/// Ranks that a collective brings in line.
class RankedArm : public SimulatedArm {
 public:
  using SimulatedArm::SimulatedArm;
  std::int64_t least_lead_in() const override { return 1; }
};

TEST(Sampler, RanksHaveALeadInHoweverLongTheirSteps) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 6e-4);
  RankedArm ranks(machine, 6e-4);
  const Samples samples = sample_two(base, ranks, quick_plan());
  EXPECT_EQ(samples.arms[0].lead_in_steps, 0);
  EXPECT_EQ(samples.arms[1].lead_in_steps, 1);
}

TEST(Sampler, AsksForThePlanAgainOnceItKnowsTheSteps) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 1e-5);
  SimulatedArm slow(machine, 3e-4);
  std::vector<std::size_t> asked;
  const auto make_plan = [&](std::span<const double> step_s) {
    asked.push_back(step_s.size());
    SamplingPlan plan = quick_plan();
    plan.min_blocks = step_s.empty() ? 1 : 12;
    if (!step_s.empty()) {
      EXPECT_NEAR(step_s[1], 3e-4, 1e-6);
    }
    return plan;
  };
  const Samples samples = sample_arms({&base, &slow}, {Clock::kHost, Clock::kHost}, true, make_plan, {});
  EXPECT_THAT(asked, testing::ElementsAre(0, 2));
  EXPECT_EQ(samples.planned_blocks, 12);
  EXPECT_EQ(samples.blocks.size(), 12U);
}

TEST(Sampler, EndsAtItsLimitEvenWithoutItsBlocks) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 1e-5);
  SamplingPlan plan = quick_plan();
  plan.min_blocks = 1 << 30;
  plan.budget_s = 1e-3;
  const Samples samples = sample_two(base, base, plan);
  EXPECT_EQ(samples.stop_reason, StopReason::kBudget);
  EXPECT_LT(samples.blocks.size(), 1U << 30);
}

/// An arm whose memory is given to others between windows: it counts its wakes, and each window says in which it was.
class RestingArm : public SimulatedArm {
 public:
  using SimulatedArm::SimulatedArm;
  bool rests() const override { return true; }
  void wake() override {
    EXPECT_FALSE(awake_);
    awake_ = true;
    ++wakes_;
  }
  void rest() override {
    EXPECT_TRUE(awake_);
    awake_ = false;
  }
  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    EXPECT_TRUE(awake_) << "a window without its memory";
    Window window = SimulatedArm::run(lead_in_steps, steps);
    window.precondition = wakes_;
    return window;
  }
  int wakes() const { return wakes_; }

 private:
  bool awake_ = false;
  int wakes_ = 0;
};

/// Of steps of so many seconds, longer than a window.
SamplingPlan visiting_plan() {
  SamplingPlan plan = quick_plan();
  plan.visits = true;
  plan.visit_lead_in_s = 0.02;
  plan.min_blocks = 4;
  return plan;
}

TEST(Sampler, ArmsThatRestAreWokenForCalibrationAndForTwoMirroredVisits) {
  SimulatedMachine machine;
  RestingArm base(machine, 0.01);
  RestingArm slower(machine, 0.0125);
  const Samples samples = sample_two(base, slower, visiting_plan());
  EXPECT_EQ(base.wakes(), 3);
  EXPECT_EQ(slower.wakes(), 3);
  ASSERT_EQ(samples.visits.size(), 4U);
  EXPECT_EQ(samples.visits.front(), samples.visits.back());
  EXPECT_EQ(samples.visits[1], samples.visits[2]);
  EXPECT_EQ(samples.blocks, std::vector<Block>(4, samples.visits));
  EXPECT_EQ(samples.dropped_visits, 0);
  EXPECT_EQ(samples.stop_reason, StopReason::kBudget) << "four blocks tell no interval";
  for (const double ratio : block_log_ratios(samples)) EXPECT_NEAR(ratio, std::log(1.25), 1e-9);
  for (const ArmSamples& arm : samples.arms) {
    ASSERT_EQ(arm.windows.size(), 8U);
    for (std::size_t block = 0; block < 4; ++block) {
      EXPECT_EQ(arm.windows[2 * block].precondition, 2) << "in the first visit";
      EXPECT_EQ(arm.windows[2 * block + 1].precondition, 3);
      if (block > 0) {
        EXPECT_GT(arm.windows[2 * block].start_s, arm.windows[2 * block - 2].start_s);
        EXPECT_LT(arm.windows[2 * block + 1].start_s, arm.windows[2 * block - 1].start_s) << "from its end";
      }
    }
  }
  const auto calls = base.calls();
  EXPECT_EQ(calls[calls.size() - 5].steps, 2) << "the lead-in of a visit";
}

TEST(Sampler, LinearDriftCancelsInEachBlockOfVisits) {
  SimulatedMachine machine;
  machine.drift_per_s = 0.02;  // 0.8 % between the middles of two arms' windows in a visit
  RestingArm base(machine, 0.02);
  RestingArm slower(machine, 0.021);
  RestingArm slowest(machine, 0.022);
  const Samples samples = sample_arms({&base, &slower, &slowest}, {Clock::kHost, Clock::kHost, Clock::kHost}, true,
                                      fixed(visiting_plan()), {});
  ASSERT_EQ(samples.visits.size(), 6U);
  for (const double ratio : block_log_ratios(samples)) EXPECT_NEAR(ratio, std::log(1.05), 2e-4);
}

TEST(Sampler, AnArmThatIsHardlyFasterIsSampledInAlternatingBlocks) {
  SimulatedMachine machine;
  RestingArm base(machine, 0.01);
  RestingArm other(machine, 0.0101);
  const Samples samples = sample_two(base, other, visiting_plan());
  EXPECT_THAT(samples.visits, testing::IsEmpty());
  EXPECT_EQ(samples.dropped_visits, 0) << "the warm-up told";
  EXPECT_GE(samples.blocks.size(), 4U);
  EXPECT_EQ(base.wakes(), 1 + 2 * static_cast<int>(samples.blocks.size())) << "for each window";
}

TEST(Sampler, AnEffectIsPerItemWhereStepsDoDifferentNumbersOfThem) {
  SimulatedMachine machine;
  RestingArm base(machine, 0.01);
  RestingArm larger_batch(machine, 0.0202);
  SamplingPlan plan = visiting_plan();
  EXPECT_THAT(sample_two(base, larger_batch, plan).visits, testing::SizeIs(4));
  plan.items = {8, 16};
  EXPECT_THAT(sample_two(base, larger_batch, plan).visits, testing::IsEmpty());
}

/// One whose first steps, those of the warm-up, are slower than all that follow.
class SlowBeginner : public RestingArm {
 public:
  using RestingArm::RestingArm;
  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    Window window = RestingArm::run(lead_in_steps, steps);
    if (wakes() == 1) window.host_s *= 1.2;
    return window;
  }
};

TEST(Sampler, VisitsThatShowASmallEffectAreReplacedAndCounted) {
  SimulatedMachine machine;
  RestingArm base(machine, 0.01);
  SlowBeginner other(machine, 0.0101);
  const Samples samples = sample_two(base, other, visiting_plan());
  EXPECT_THAT(samples.visits, testing::IsEmpty());
  EXPECT_EQ(samples.dropped_visits, 4);
  for (const double ratio : block_log_ratios(samples)) EXPECT_NEAR(ratio, std::log(1.01), 1e-9);
}

TEST(Sampler, ASmallStepOfALadderAlternatesToo) {
  SimulatedMachine machine;
  RestingArm base(machine, 0.01);
  RestingArm rung(machine, 0.0125);
  RestingArm next(machine, 0.0126);
  const Samples samples =
      sample_arms({&base, &rung, &next}, {Clock::kHost, Clock::kHost, Clock::kHost}, true, fixed(visiting_plan()), {});
  EXPECT_THAT(samples.visits, testing::IsEmpty());
}

TEST(Sampler, AVisitedBlockThatWasDisturbedInEitherVisitIsDropped) {
  SimulatedMachine machine;
  RestingArm base(machine, 0.01);
  RestingArm slower(machine, 0.0125);
  int windows = 0;
  // The second window of the first visit, and the last of the last one, which a block has with the first of the first.
  const Samples samples = sample_two(base, slower, visiting_plan(), [&](double, double) {
    ++windows;
    return windows == 2 || windows == 16;
  });
  EXPECT_EQ(windows, 16);
  EXPECT_EQ(samples.discarded_blocks, 2);
  EXPECT_EQ(samples.blocks.size(), 2U);
  for (const ArmSamples& arm : samples.arms) EXPECT_EQ(arm.windows.size(), 4U);
}

TEST(Sampler, VisitsHaveAsManyBlocksAsTheLimitHolds) {
  SimulatedMachine machine;
  RestingArm base(machine, 10);
  RestingArm slower(machine, 14);
  SamplingPlan plan = visiting_plan();
  plan.budget_s = 60;
  plan.limit_s = 100;
  const Samples samples = sample_arms({&base, &slower}, {Clock::kHost, Clock::kHost}, true,
                                      [&](std::span<const double>) { return plan; }, {});
  EXPECT_EQ(samples.blocks.size(), 2U) << "of 48 s each";
  EXPECT_EQ(samples.planned_blocks, 4);
}

TEST(Sampler, ALimitOfWindowsDoesNotCountWhatIsAroundThem) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 10);  // of simulated time, so that real time never gets to the limit
  SamplingPlan plan = quick_plan();
  plan.budget_s = 0;
  plan.limit_s = 100;
  plan.limits_windows = true;
  const Samples samples =
      sample_arms({&base}, {Clock::kHost}, false, [&](std::span<const double>) { return plan; }, {});
  EXPECT_EQ(samples.blocks.size(), 5U) << "of 20 s each";
}

TEST(Sampler, SaysWhatItDoes) {
  SimulatedMachine machine;
  SimulatedArm base(machine, 1e-5);
  std::vector<std::string> told;
  sample_arms({&base}, {Clock::kHost}, false, fixed(quick_plan()),
              {.disturbed = {}, .tell = [&](const std::string& what) { told.push_back(what); }});
  EXPECT_THAT(told, testing::ElementsAre("calibrating arm 1 of 1", "warming up arm 1 of 1", "block 1 of at least 8"))
      << "a block at most once a second";
}

}  // namespace
}  // namespace gpulift
