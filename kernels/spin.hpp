#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gpulift {

/// Launches a kernel of one warp that does nothing; it adds 1 to the counter (device memory) unless that is null.
void launch_empty(std::uint64_t* counter, cudaStream_t stream);

/// Launches a kernel of one warp that runs for `cycles` cycles of its multiprocessor's clock; it adds 1 to the counter
/// (device memory) unless that is null.
void spin(std::int64_t cycles, std::uint64_t* counter, cudaStream_t stream);

/// The multiplier and the summand of fma_chain(). Their fixed point is 1, so that no chain overflows.
inline constexpr float kChainMultiplier = 0.75F;
inline constexpr float kChainSummand = 0.25F;

/// output[i] = x after `iterations` rounds of x = fma(x, kChainMultiplier, kChainSummand) from x = input[i]: arithmetic
/// whose length is chosen by count, not by clock. 2 * iterations floating-point operations an element.
void fma_chain(const float* input, float* output, std::size_t count, int iterations, cudaStream_t stream);

}  // namespace gpulift
