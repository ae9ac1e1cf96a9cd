#pragma once
// The random bits of this project, the same on the host and on the device.

#include <cuda_runtime_api.h>  // __host__, __device__

#include <cstdint>

namespace gpulift {

/// Output number `index` of the SplitMix64 generator started at `seed` (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014). Its state is a plain counter, so every index is reached directly:
/// any thread makes any part of the sequence.
__host__ __device__ constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t bits = seed + (index + 1) * 0x9E3779B97F4A7C15ull;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ull;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBull;
  return bits ^ (bits >> 31);
}

}  // namespace gpulift
