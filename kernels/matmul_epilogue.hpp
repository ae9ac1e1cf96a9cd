#pragma once
// What follows a product in an MLP: a bias per row of the result and GELU in its tanh form, which is also cuBLASLt's.

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/matmul_data.hpp"

namespace gpulift {

/// to = gelu(from + bias), of matrices stored by columns of `rows` elements, computed in FP32. In place where both are
/// the same. Throws std::invalid_argument unless `rows` is a multiple of 8; all must be aligned to 16 bytes.
void bias_gelu(const __nv_bfloat16* from, const __nv_bfloat16* bias, __nv_bfloat16* to, std::int64_t rows,
               std::int64_t columns, cudaStream_t stream);

/// The same apart and in FP64, for a reference that holds `rows` of a larger result by `columns`.
void add_bias(double* reference, const Rows& rows, std::int64_t columns, const __nv_bfloat16* bias,
              cudaStream_t stream);
void apply_gelu(double* values, std::int64_t count, cudaStream_t stream);

}  // namespace gpulift
