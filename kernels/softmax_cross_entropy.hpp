#pragma once
// Softmax and cross-entropy of rows of logits, forward and backward in one step: BF16 in memory, FP32 in between.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gpulift {

/// Matrices by rows, aligned to 16 bytes; rows need not be.
struct CrossEntropy {
  std::size_t rows = 0;
  int classes = 0;
  float scale = 1;                        // of the gradient: 1 / rows for the mean of the losses
  const __nv_bfloat16* logits = nullptr;  // [rows][classes]
  const std::int32_t* targets = nullptr;  // [rows]
  float* losses = nullptr;                // [rows]: log(sum(exp(logits))) - logits[target]
  __nv_bfloat16* gradient = nullptr;      // [rows][classes]: (softmax - one_hot(target)) * scale
};

/// Shared memory in which the fused kernel holds a row of so many classes on the current device; 0 where there is less:
/// then rows are read twice. Asks the driver for it: call it once, not in each step.
std::size_t cross_entropy_held_bytes(int classes);

/// One launch; reads the logits once where a row is held.
void cross_entropy(const CrossEntropy& data, std::size_t held_bytes, cudaStream_t stream);

/// In FP64, simple and slow: what the others are held against.
void cross_entropy_reference(const CrossEntropy& data, float* losses, float* gradient, cudaStream_t stream);

}  // namespace gpulift
