#pragma once
// L2 norms of many tensors of BF16, summed in FP32. Equal data gives equal bits.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/tensor_piece.hpp"

namespace gpulift {

/// Aligned to 16 bytes, of any count.
struct NormedTensor {
  const __nv_bfloat16* data = nullptr;
  std::size_t count = 0;
};

constexpr std::size_t kSquaresPiece = 16384;

/// A sum of squares for each of `piece_count` pieces of kSquaresPiece numbers. All pointers are on the device.
void square_sums(const NormedTensor* tensors, const TensorPiece* pieces, std::size_t piece_count, float* sums,
                 cudaStream_t stream);

/// roots[i] = the root of the sum of sums[first[i]] to sums[first[i + 1] - 1], `count` of them.
void roots_of_sums(const float* sums, const std::size_t* first, std::size_t count, float* roots, cudaStream_t stream);

/// The norm of norms: the root of the sum of their squares.
void norm_of_norms(const float* norms, std::size_t count, float* norm, cudaStream_t stream);

/// Adds the tensor's squares to `sum` in FP64, simple and slow: what the others are held against.
void square_sum_reference(const NormedTensor& tensor, double* sum, cudaStream_t stream);

}  // namespace gpulift
