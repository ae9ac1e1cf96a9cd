#pragma once
// The reference of what follows a product in an MLP: a bias per row of the result, and GELU in its tanh form, which is
// also cuBLASLt's.

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/matmul_data.hpp"

namespace gpulift {

/// In FP64, for a reference that holds `rows` of a larger result by `columns`.
void add_bias(double* reference, const Rows& rows, std::int64_t columns, const __nv_bfloat16* bias,
              cudaStream_t stream);
void apply_gelu(double* values, std::int64_t count, cudaStream_t stream);

}  // namespace gpulift
