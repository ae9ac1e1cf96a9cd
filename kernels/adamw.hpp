#pragma once
// AdamW over many tensors in one launch: BF16 weights and gradients, FP32 master weights and moments.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/tensor_piece.hpp"

namespace gpulift {

/// Aligned to 16 bytes, of any count. Moves 28 bytes for each weight.
struct AdamWTensor {
  __nv_bfloat16* weight = nullptr;  // the master weight, rounded
  const __nv_bfloat16* gradient = nullptr;
  float* master = nullptr;
  float* mean = nullptr;    // running, of the gradient
  float* square = nullptr;  // running, of the gradient's square
  std::size_t count = 0;
};

struct AdamWRates {
  float rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float decay = 0.1F;
};

constexpr std::size_t kAdamWPiece = 4096;

/// One launch for `piece_count` pieces of kAdamWPiece weights, of any of the tensors. `step` counts from 1. All
/// pointers are on the device.
void adamw(const AdamWTensor* tensors, const TensorPiece* pieces, std::size_t piece_count, const AdamWRates& rates,
           int step, cudaStream_t stream);

/// In FP64, simple and slow, of one tensor: what the others are held against. Leaves the weight alone.
void adamw_reference(const AdamWTensor& tensor, const AdamWRates& rates, int step, cudaStream_t stream);

}  // namespace gpulift
