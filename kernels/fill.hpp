#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gpulift {

/// Writes normal deviates of mean 0 and the given standard deviation, made from random_bits() by the Box-Muller
/// transform. Equal seeds give equal data, whatever the device; element i does not depend on `count`.
void fill_normal(float* data, std::size_t count, std::uint64_t seed, cudaStream_t stream, float deviation = 1.0F);
void fill_normal(__half* data, std::size_t count, std::uint64_t seed, cudaStream_t stream, float deviation = 1.0F);
void fill_normal(__nv_bfloat16* data, std::size_t count, std::uint64_t seed, cudaStream_t stream,
                 float deviation = 1.0F);

/// Writes the byte pattern of the seed: 64-bit word i of it is random_bits(seed, i), low byte first. `data` holds the
/// pattern from word `first_word` on and must be aligned to 8 bytes; throws std::invalid_argument otherwise.
void fill_pattern(void* data, std::size_t bytes, std::uint64_t seed, cudaStream_t stream, std::uint64_t first_word = 0);

}  // namespace gpulift
