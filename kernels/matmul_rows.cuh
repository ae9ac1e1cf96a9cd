#pragma once
// For .cu files: which row of a larger matrix a sample of Rows holds at a position.

#include <cstdint>

#include "kernels/matmul_data.hpp"

namespace gpulift {

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): the index-th output of the
/// stream that starts at `seed`.
__device__ inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

__device__ inline std::int64_t row_number(const Rows& rows, std::int64_t position) {
  const std::int64_t start = rows.first + position * rows.stripe;
  if (rows.stripe == 1) return start;
  return start + static_cast<std::int64_t>(random_bits(0, position) % static_cast<std::uint64_t>(rows.stripe));
}

}  // namespace gpulift
