#pragma once
// For .cu files: the largest magnitude of a whole matrix, in two launches without a memset or an atomic. The first
// leaves the largest of each block, and every block of the second, which casts, takes the largest of these.

#include <cstdint>

#include "kernels/packed.hpp"

namespace gpulift {

/// Blocks of the first launch, two on each multiprocessor, and so many floats that it leaves. Few, as all blocks of the
/// second read them.
constexpr int kLargestBlocks = 256;

/// The largest magnitude of a pack as it lies in memory.
__device__ inline float largest_of(uint4 bits) {
  const std::uint32_t words[kPack / 2] = {bits.x, bits.y, bits.z, bits.w};
  __nv_bfloat162 largest = __float2bfloat162_rn(0);
#pragma unroll
  for (int k = 0; k < kPack / 2; ++k) {
    constexpr std::uint32_t kNoSigns = 0x7FFF7FFF;
    const std::uint32_t magnitudes = words[k] & kNoSigns;
    __nv_bfloat162 pair;
    memcpy(&pair, &magnitudes, sizeof pair);
    largest = __hmax2(largest, pair);
  }
  return fmaxf(__low2float(largest), __high2float(largest));
}

namespace detail {

constexpr int kLargestThreads = 1024;
constexpr int kLargestUnroll = 4;  // loads in flight: 64 KiB a block

static __global__ __launch_bounds__(kLargestThreads) void largest_kernel(const uint4* from, std::int64_t packs,
                                                                         float* largest) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kLargestThreads;
  float own = 0;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kLargestThreads + threadIdx.x; first < packs;
       first += kLargestUnroll * step) {
    uint4 held[kLargestUnroll];
#pragma unroll
    for (int k = 0; k < kLargestUnroll; ++k) {
      const std::int64_t i = first + k * step;
      held[k] = i < packs ? from[i] : uint4{};
    }
#pragma unroll
    for (int k = 0; k < kLargestUnroll; ++k) own = fmaxf(own, largest_of(held[k]));
  }
  own = block_reduce<kLargestThreads>(own, Larger{});
  if (threadIdx.x == 0) largest[blockIdx.x] = own;
}

}  // namespace detail

/// Leaves kLargestBlocks numbers, the largest of which is the matrix's. `from` is aligned to 16 bytes.
inline void find_largest(const __nv_bfloat16* from, std::int64_t packs, float* largest, cudaStream_t stream) {
  detail::largest_kernel<<<kLargestBlocks, detail::kLargestThreads, 0, stream>>>(reinterpret_cast<const uint4*>(from),
                                                                                 packs, largest);
}

/// Of what find_largest() left, in a block of kThreads, all of whose threads call it.
template <int kThreads>
__device__ float largest_found(const float* largest) {
  static_assert(kThreads == kLargestBlocks);
  return block_reduce<kThreads>(largest[threadIdx.x], Larger{});
}

}  // namespace gpulift
