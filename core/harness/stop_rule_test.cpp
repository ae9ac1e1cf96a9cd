#include "stop_rule.hpp"

#include <gtest/gtest.h>

#include <boost/math/distributions/binomial.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

namespace gpulift {
namespace {

std::vector<double> one_to(int count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Median, IsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({5, 1, 3}), 3);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_THROW(median({}), std::invalid_argument);
}

// Ranks of the tables for the sign test (Conover, Practical Nonparametric Statistics): 95 % intervals of the median are
// x(1)..x(6) at n = 6, x(2)..x(9) at 10, x(6)..x(15) at 20, x(10)..x(21) at 30.
TEST(MedianHalfWidth, AgreesWithTheTablesOfTheSignTest) {
  EXPECT_EQ(median_half_width(one_to(6), 0.95), 2.5);
  EXPECT_EQ(median_half_width(one_to(10), 0.95), 3.5);
  EXPECT_EQ(median_half_width(one_to(20), 0.95), 4.5);
  EXPECT_EQ(median_half_width(one_to(30), 0.95), 5.5);
}

TEST(MedianHalfWidth, TakesTheInnermostPairThatCovers) {
  constexpr double kConfidence = 0.975;
  for (int count = 7; count <= 200; ++count) {
    const auto width = median_half_width(one_to(count), kConfidence);
    ASSERT_TRUE(width) << count;
    const double rank = (count + 1) / 2.0 - *width;  // of the lower end, 1 for the smallest
    const boost::math::binomial signs(count, 0.5);
    EXPECT_GE(1 - 2 * cdf(signs, rank - 1), kConfidence) << count;
    if (rank + 1 < count / 2.0) {
      EXPECT_LT(1 - 2 * cdf(signs, rank), kConfidence) << count;
    }
  }
}

TEST(MedianHalfWidth, NeedsSevenValuesForItsConfidence) {
  EXPECT_FALSE(median_half_width({}, 0.975));
  EXPECT_FALSE(median_half_width(one_to(6), 0.975));
  EXPECT_TRUE(median_half_width(one_to(7), 0.975));
}

TEST(MedianHalfWidth, IsTheWiderSide) { EXPECT_EQ(median_half_width({0, 1, 2, 3, 4, 5, 60}, 0.975), 57); }

TEST(MedianHalfWidth, IgnoresOneWildValueAmongMany) {
  std::vector<double> values = one_to(20);
  const auto before = median_half_width(values, 0.975);
  values.back() = 1e9;
  EXPECT_EQ(median_half_width(values, 0.975), before);
}

/// How often median +- half-width contains the true median 0, of samples with heavy tails.
double coverage(int samples, int values_per_sample) {
  std::mt19937_64 random(1);
  std::student_t_distribution<double> heavy_tails(2);
  int covered = 0;
  for (int i = 0; i < samples; ++i) {
    std::vector<double> values(static_cast<std::size_t>(values_per_sample));
    for (double& value : values) value = heavy_tails(random);
    if (std::abs(median(values)) <= *median_half_width(values, 0.975)) ++covered;
  }
  return static_cast<double>(covered) / samples;
}

TEST(MedianHalfWidth, CoversTheMedianAsOftenAsItSays) {
  constexpr int kSamples = 4000;
  const double three_errors = 3 * std::sqrt(0.975 * 0.025 / kSamples);
  for (const int count : {8, 15, 40}) EXPECT_GE(coverage(kSamples, count), 0.975 - three_errors) << count;
}

}  // namespace
}  // namespace gpulift
