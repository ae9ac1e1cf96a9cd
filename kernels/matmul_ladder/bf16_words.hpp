#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace gpulift {

/// Eight BF16 numbers as floats: a BF16 number is the upper half of a float.
inline __device__ void widen(const uint4& packed, float (&values)[8]) {
  const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
  }
}

/// Two floats as BF16 numbers, rounded to nearest.
inline __device__ unsigned narrow(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

}  // namespace gpulift
