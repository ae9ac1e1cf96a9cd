#pragma once

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

}  // namespace gpulift
