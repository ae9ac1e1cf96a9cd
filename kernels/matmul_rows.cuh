#pragma once
// For .cu files: which row of a larger matrix a sample of Rows holds at a position.

#include <cstdint>

#include "kernels/matmul_data.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {

__device__ inline std::int64_t row_number(const Rows& rows, std::int64_t position) {
  const std::int64_t start = rows.first + position * rows.stripe;
  if (rows.stripe == 1) return start;
  return start + static_cast<std::int64_t>(random_bits(0, position) % static_cast<std::uint64_t>(rows.stripe));
}

}  // namespace gpulift
