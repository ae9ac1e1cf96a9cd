#pragma once
// Residual addition and normalisation of rows, forward and backward: BF16 in memory, FP32 in between.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace gpulift {

enum class Norm { kLayer, kRms };  // RMSNorm: neither a mean nor a bias

/// Columns must be a multiple of 8 and at most 8192, since a row is held in registers: up to 1024 in those of a warp,
/// else in those of a block.
struct NormShape {
  std::size_t rows;
  int columns;
  Norm norm = Norm::kLayer;
  float epsilon = 1e-5F;
};

/// Device memory, matrices by rows, aligned to 16 bytes.
struct NormTensors {
  // [rows][columns]
  const __nv_bfloat16* input = nullptr;  // null: the sum is there already
  const __nv_bfloat16* residual = nullptr;
  __nv_bfloat16* sum = nullptr;
  __nv_bfloat16* output = nullptr;  // null: only the statistics are wanted
  const __nv_bfloat16* output_gradient = nullptr;
  const __nv_bfloat16* skip_gradient = nullptr;  // of the sum, past the normalisation; null: none is added
  __nv_bfloat16* sum_gradient = nullptr;
  // [columns]
  const __nv_bfloat16* weight = nullptr;
  const __nv_bfloat16* bias = nullptr;  // unused by RMSNorm
  // [rows]
  float* mean = nullptr;  // RMSNorm: zeros
  float* rstd = nullptr;
  // [2][columns]: of the weight, and but for RMSNorm of the bias
  float* parameter_gradient = nullptr;
  float* partials = nullptr;  // norm_partials() of them
};

/// How many floats the backward pass needs for sums of its blocks.
std::size_t norm_partials(const NormShape& shape, int multiprocessors);

/// sum = input + residual; output = normalised(sum) * weight + bias. One launch.
void norm_forward(const NormShape& shape, const NormTensors& tensors, cudaStream_t stream);

/// sum_gradient = gradient through the normalisation + skip_gradient, and parameter_gradient, from `sum`, `mean` and
/// `rstd`. Two launches. Equal data gives equal bits.
void norm_backward(const NormShape& shape, const NormTensors& tensors, int multiprocessors, cudaStream_t stream);

/// In FP64, simple and slow: what the others are held against. Results are [rows][columns]; [2][columns] for
/// parameters.
void norm_forward_reference(const NormShape& shape, const NormTensors& tensors, float* sum, float* output,
                            cudaStream_t stream);
void norm_backward_reference(const NormShape& shape, const NormTensors& tensors, float* sum_gradient,
                             float* parameter_gradient, cudaStream_t stream);

}  // namespace gpulift
