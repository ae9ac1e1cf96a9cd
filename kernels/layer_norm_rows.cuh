#pragma once
// For the .cu files of a normalisation: who shares a row, and how a kernel is chosen by the width of rows.

#include <cstddef>
#include <stdexcept>

#include "kernels/layer_norm.hpp"
#include "kernels/packed.hpp"

namespace gpulift {

constexpr int kNormThreads = 256;
constexpr int kNormVectors = 4;  // packs of a row that a thread holds at most
constexpr int kWarpColumns = kNormVectors * kWarp * kPack;

/// Threads that share a row: those of a warp up to 1024 columns, of wider rows those of a block. Thread t holds packs
/// t, t + kTeam, ... of it.
template <int kTeam>
__device__ int column_of(int vector) {
  return (vector * kTeam + static_cast<int>(threadIdx.x) % kTeam) * kPack;
}

template <int kTeam>
__device__ float team_sum(float value) {
  if constexpr (kTeam == kWarp) {
    return warp_sum(value);
  } else {
    return block_reduce<kTeam>(value, Plus{});
  }
}

inline void require(const NormShape& shape, const NormTensors& tensors) {
  constexpr int kMostColumns = kNormVectors * kNormThreads * kPack;
  if (shape.columns < kPack || shape.columns % kPack != 0 || shape.columns > kMostColumns) {
    throw std::invalid_argument("norm: the columns must be a multiple of 8 and at most 8192");
  }
  require_aligned({tensors.input, tensors.residual, tensors.sum, tensors.output, tensors.output_gradient,
                   tensors.skip_gradient, tensors.sum_gradient, tensors.weight, tensors.bias});
}

inline unsigned blocks_of(std::size_t items, int each_block) {
  return static_cast<unsigned>((items + each_block - 1) / each_block);
}

/// Rows that a block of kNormThreads works on at a time.
inline int rows_of_block(const NormShape& shape) { return shape.columns <= kWarpColumns ? kNormThreads / kWarp : 1; }

/// Calls f with the number of threads that share a row, of packs that each holds of it, and whether means are
/// subtracted, as constants.
template <typename F>
void with_constants(const NormShape& shape, F f) {
  const auto with_vectors = [&]<int kTeam, bool kCentred>() {
    switch (blocks_of(shape.columns, kTeam * kPack)) {
      case 1:
        return f.template operator()<kTeam, 1, kCentred>();
      case 2:
        return f.template operator()<kTeam, 2, kCentred>();
      case 3:
        return f.template operator()<kTeam, 3, kCentred>();
      default:
        return f.template operator()<kTeam, kNormVectors, kCentred>();
    }
  };
  const auto with_team = [&]<bool kCentred>() {
    if (shape.columns <= kWarpColumns) return with_vectors.template operator()<kWarp, kCentred>();
    with_vectors.template operator()<kNormThreads, kCentred>();
  };
  shape.norm == Norm::kLayer ? with_team.template operator()<true>() : with_team.template operator()<false>();
}

}  // namespace gpulift
