#pragma once
// Kernels as the faults need them, the sound ones and the others. All data is aligned to 16 bytes.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gpulift::testing_faults {

/// Copies 16 bytes a thread; `bytes` must be a multiple of 16. Each block asks for `shared_bytes` of shared memory that
/// it does not use.
void copy_vectors(const std::byte* input, std::byte* output, std::size_t bytes, std::size_t shared_bytes,
                  cudaStream_t stream);

/// The most shared memory that a block of copy_vectors() can ask for, which it is then allowed to: no second block fits
/// beside it.
std::size_t allow_most_shared_bytes(int device_index);

/// Copies one byte a thread.
void copy_bytes(const std::byte* input, std::byte* output, std::size_t bytes, cudaStream_t stream);

/// output[i] = factor * input[i] + summand, which may be in place. Moves 8 * count bytes; `count` a multiple of 4.
void scale_and_add(const float* input, float* output, std::size_t count, float factor, float summand,
                   cudaStream_t stream);

/// matrix[column][row] = max(0, matrix[column][row] + bias[row]): the epilogue of a matrix product.
void add_bias_relu(__nv_bfloat16* matrix, const __nv_bfloat16* bias, std::int64_t rows, std::int64_t columns,
                   cudaStream_t stream);
void add_bias_relu(float* matrix, const __nv_bfloat16* bias, std::int64_t rows, std::int64_t columns,
                   cudaStream_t stream);

}  // namespace gpulift::testing_faults
