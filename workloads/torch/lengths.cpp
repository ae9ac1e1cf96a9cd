#include "lengths.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace gpulift {

std::vector<std::int64_t> draw_lengths(const LengthDistribution& distribution, std::size_t count, std::uint64_t seed) {
  const double sigma = distribution.sigma;
  std::mt19937_64 generator(seed);
  // The mean of a log-normal variable is exp(mu + sigma^2 / 2).
  std::lognormal_distribution<double> length(std::log(distribution.mean) - sigma * sigma / 2, sigma);
  std::vector<std::int64_t> lengths(count);
  std::generate(lengths.begin(), lengths.end(), [&] {
    return std::clamp(static_cast<std::int64_t>(std::llround(length(generator))), distribution.shortest,
                      distribution.longest);
  });
  return lengths;
}

}  // namespace gpulift
