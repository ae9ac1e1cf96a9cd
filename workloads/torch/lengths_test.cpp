#include "lengths.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpulift {
namespace {

double mean_of(const std::vector<std::int64_t>& lengths) {
  return static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})) /
         static_cast<double>(lengths.size());
}

TEST(DrawLengths, HaveTheStatedMeanAndSpread) {
  // So wide that nothing is clipped. The standard error of the mean of 1e5 draws is 0.2 % here.
  const LengthDistribution wide{.mean = 180, .sigma = 0.6, .shortest = 1, .longest = 1'000'000};
  auto lengths = draw_lengths(wide, 100'000, 1);
  EXPECT_NEAR(mean_of(lengths), 180, 2);
  std::sort(lengths.begin(), lengths.end());
  const double median = static_cast<double>(lengths[lengths.size() / 2]);
  EXPECT_NEAR(median, 180 * std::exp(-0.18), 2);  // exp(mu)
  const double upper = static_cast<double>(lengths[lengths.size() * 84134 / 100'000]);
  EXPECT_NEAR(std::log(upper / median), 0.6, 0.02);  // one sigma
}

TEST(DrawLengths, AreClipped) {
  const auto lengths = draw_lengths({}, 10'000, 1);
  EXPECT_EQ(*std::min_element(lengths.begin(), lengths.end()), 16);
  EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 512);
}

TEST(DrawLengths, AreThoseOfTheSeed) {
  EXPECT_EQ(draw_lengths({}, 100, 7), draw_lengths({}, 100, 7));
  EXPECT_NE(draw_lengths({}, 100, 7), draw_lengths({}, 100, 8));
}

}  // namespace
}  // namespace gpulift
