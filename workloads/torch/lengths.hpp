#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpulift {

/// Lengths of synthetic sequences: log-normal, rounded, clipped to the shortest and the longest.
struct LengthDistribution {
  double mean = 180;   // before clipping
  double sigma = 0.6;  // of the logarithm
  std::int64_t shortest = 16;
  std::int64_t longest = 512;
};

/// The same lengths for the same seed.
std::vector<std::int64_t> draw_lengths(const LengthDistribution& distribution, std::size_t count, std::uint64_t seed);

}  // namespace gpulift
