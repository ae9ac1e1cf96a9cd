#pragma once
// For .cu files: normal deviates of random bits.

#include <cstdint>

namespace gpulift {

/// Two independent standard normal deviates from 64 random bits (Box and Muller, 1958), neither beyond
/// sqrt(2 * 32 * ln 2) = 6.7.
__device__ inline float2 standard_normals(std::uint64_t bits) {
  constexpr float kScale = 1.0F / 4294967296.0F;
  // The first uniform lies in (0, 1], since its logarithm must be finite.
  const float radius = sqrtf(-2.0F * logf((static_cast<float>(bits >> 32) + 1.0F) * kScale));
  float sine = 0;
  float cosine = 0;
  sincospif(2.0F * static_cast<float>(bits & 0xFFFFFFFFu) * kScale, &sine, &cosine);
  return {radius * cosine, radius * sine};
}

}  // namespace gpulift
