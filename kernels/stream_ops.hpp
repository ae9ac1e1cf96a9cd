#pragma once
// Kernels that do nothing but move device memory, after the STREAM benchmark (McCalpin). All buffers must be aligned
// to 16 bytes and all counts must be multiples of 4; std::invalid_argument otherwise.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gpulift {

/// How many partial sums stream_read() writes for `count` elements.
std::size_t stream_read_partials(std::size_t count);

/// Reads every element once. What it writes is small beside that: sums of the elements' 32-bit patterns, which add up
/// to the sum of all words modulo 2^32 in any order, so that a skipped read is found. Moves 4 * count bytes.
void stream_read(const float* input, std::size_t count, std::uint32_t* partial_sums, cudaStream_t stream);

/// output[i] = value. Moves 4 * count bytes.
void stream_write(float* output, std::size_t count, float value, cudaStream_t stream);

/// output[i] = input[i]. Moves 8 * count bytes.
void stream_copy(const float* input, float* output, std::size_t count, cudaStream_t stream);

/// output[i] = fma(scalar, right[i], left[i]). Moves 12 * count bytes.
void stream_triad(const float* left, const float* right, float scalar, float* output, std::size_t count,
                  cudaStream_t stream);

}  // namespace gpulift
