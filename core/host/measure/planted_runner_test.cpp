#include "planted_runner.hpp"

#include <gtest/gtest.h>

namespace gpulift {
namespace {

/// A clock that only work moves.
struct Time {
  double now = 0;
};

class CountedWork : public ExtraWork {
 public:
  explicit CountedWork(Time& time) : time_(time) {}
  void add(double work_s, std::optional<double> /*sm_clock_hz*/) override {
    added_s_ = 0.9 * work_s;  // does less than it is told, and says so
    time_.now += added_s_;
  }
  double added_s(std::optional<double> /*sm_clock_hz*/) const override { return added_s_; }

 private:
  Time& time_;
  double added_s_ = 0;
};

class TimedRunner : public ArmRunner {
 public:
  TimedRunner(Work work, Time& time) : step_(work.step()), time_(time) {}
  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    for (std::int64_t i = 0; i < lead_in_steps; ++i) step_(nullptr);
    const double start_s = time_.now;
    for (std::int64_t i = 0; i < steps; ++i) step_(nullptr);
    Window window;
    window.host_s = time_.now - start_s;
    return window;
  }
  std::int64_t max_steps() const override { return 77; }

 private:
  Step step_;
  Time& time_;
};

class PlantedRunnerTest : public testing::Test {
 protected:
  PlantedRunner slowed_by(double fraction) {
    return {Work([this](StreamHandle) { time_.now += 0.25; }), Clock::kHost, fraction,
            std::make_unique<CountedWork>(time_),
            [this](Work work) { return std::make_unique<TimedRunner>(std::move(work), time_); }};
  }
  Time time_;
};

TEST_F(PlantedRunnerTest, SlowsEveryWindowButTheFirstByTheFraction) {
  PlantedRunner runner = slowed_by(0.02);
  EXPECT_FALSE(runner.planted());
  EXPECT_DOUBLE_EQ(runner.run(2, 8).host_s, 2);
  EXPECT_DOUBLE_EQ(runner.run(2, 8).host_s, 2 * (1 + 0.9 * 0.02));
  EXPECT_DOUBLE_EQ(runner.run(0, 16).host_s, 4 * (1 + 0.9 * 0.02)) << "a longer window gets more";
}

TEST_F(PlantedRunnerTest, SaysWhatTheExtraWorkReallyWas) {
  PlantedRunner runner = slowed_by(0.05);
  for (int i = 0; i < 4; ++i) runner.run(1, 4);
  ASSERT_TRUE(runner.planted());
  EXPECT_DOUBLE_EQ(*runner.planted(), 0.9 * 0.05);
}

TEST_F(PlantedRunnerTest, AddsNothingToLeadInsAndKeepsTheLimitOfSteps) {
  PlantedRunner runner = slowed_by(0.5);
  runner.run(0, 4);
  const double before_s = time_.now;
  runner.run(4, 4);
  EXPECT_DOUBLE_EQ(time_.now - before_s, 1 + 1 * (1 + 0.9 * 0.5));
  EXPECT_EQ(runner.max_steps(), 77);
}

/// Work that cannot be made shorter than its launch, and claims more than it took, as one does whose cost was measured
/// on a slower clock.
class OverstatedWork : public ExtraWork {
 public:
  OverstatedWork(Time& time, double claimed_s) : time_(time), claimed_s_(claimed_s) {}
  void add(double /*work_s*/, std::optional<double> /*sm_clock_hz*/) override { time_.now += 0.01; }
  double added_s(std::optional<double> /*sm_clock_hz*/) const override { return claimed_s_; }

 private:
  Time& time_;
  double claimed_s_;
};

class OverstatedWorkTest : public PlantedRunnerTest, public testing::WithParamInterface<double> {};

TEST_P(OverstatedWorkTest, IsUnknownAndTheNextWindowTellsAnew) {
  PlantedRunner runner([this](StreamHandle) { time_.now += 0.25; }, Clock::kHost, 0.01,
                       std::make_unique<OverstatedWork>(time_, GetParam()),
                       [this](Work work) { return std::make_unique<TimedRunner>(std::move(work), time_); });
  EXPECT_DOUBLE_EQ(runner.run(0, 1).host_s, 0.25);
  EXPECT_DOUBLE_EQ(runner.run(0, 1).host_s, 0.26);
  EXPECT_FALSE(runner.planted()) << *runner.planted();
  EXPECT_DOUBLE_EQ(runner.run(0, 1).host_s, 0.25) << "without extra work";
  EXPECT_DOUBLE_EQ(runner.run(0, 1).host_s, 0.26);
  EXPECT_FALSE(runner.planted()) << *runner.planted();
}

INSTANTIATE_TEST_SUITE_P(Claims, OverstatedWorkTest, testing::Values(0.26, 5.0));  // all of the window, and more

TEST(HostWork, IsBusyForAtLeastTheTimeAsked) {
  const auto work = make_host_work();
  work->add(1e-4, std::nullopt);
  EXPECT_GE(work->added_s(std::nullopt), 1e-4);
}

}  // namespace
}  // namespace gpulift
