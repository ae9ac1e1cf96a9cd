#include "step_times.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

namespace gpulift {
namespace {

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> values(200);
  std::iota(values.rbegin(), values.rend(), 1.0);  // 200 .. 1
  EXPECT_EQ(percentile(values, 0.5), 100);
  EXPECT_EQ(percentile(values, 0.99), 198);
  EXPECT_EQ(percentile({3, 1, 2}, 0.99), 3);
  EXPECT_EQ(percentile({3, 1, 2}, 0), 1);
  EXPECT_THROW(percentile({}, 0.5), std::invalid_argument);
}

TEST(StepPercentiles, ShowAStepThatIsRarelySlow) {
  int steps = 0;
  const auto metrics =
      step_percentiles([&] { std::this_thread::sleep_for(std::chrono::milliseconds(++steps % 10 == 0 ? 50 : 0)); },
                       {.least_steps = 5, .most_steps = 20, .most_time_s = 60});
  EXPECT_EQ(steps, 20);
  EXPECT_EQ(metrics.at("timed_steps"), 20);
  EXPECT_GE(metrics.at("step_p99_s"), 0.05);
  EXPECT_LT(metrics.at("step_p50_s"), metrics.at("step_p99_s"));
}

TEST(StepPercentiles, EndWhenTheTimeIsSpentButNotTooEarly) {
  int steps = 0;
  step_percentiles([&] { ++steps; }, {.least_steps = 7, .most_steps = 1000, .most_time_s = 0});
  EXPECT_EQ(steps, 7);
}

}  // namespace
}  // namespace gpulift
