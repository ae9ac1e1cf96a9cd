#pragma once
// A bias and GELU behind it: BF16 in memory, FP32 in between.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace gpulift {

/// output = GELU(input + bias), of the tanh form. Aligned to 16 bytes; `columns` must be a multiple of 8, `count` need
/// not be one of them.
struct BiasGelu {
  std::size_t count = 0;
  int columns = 8;
  const __nv_bfloat16* input = nullptr;  // [count], by rows of so many columns
  const __nv_bfloat16* bias = nullptr;   // [columns]
  __nv_bfloat16* output = nullptr;       // [count]
};

/// One launch.
void bias_gelu(const BiasGelu& data, cudaStream_t stream);

/// In FP64: what the others are held against.
void bias_gelu_reference(const BiasGelu& data, float* output, cudaStream_t stream);

}  // namespace gpulift
