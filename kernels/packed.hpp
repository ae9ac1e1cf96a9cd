#pragma once
// For .cu files: BF16 in memory, FP32 in registers, moved in packs of 16 bytes.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <stdexcept>

#include "core/cuda/check.hpp"

namespace gpulift {

constexpr int kPack = 8;  // BF16 numbers in one 128-bit access
constexpr int kWarp = 32;
constexpr int kMapThreads = 256;

/// Throws std::invalid_argument for a pointer that no 128-bit access may use. Null is aligned.
inline void require_aligned(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) {
      throw std::invalid_argument("the data must be aligned to 16 bytes");
    }
  }
}

struct Pack {
  float at[kPack];
};

__device__ inline Pack unpack(uint4 bits) {
  const std::uint32_t words[kPack / 2] = {bits.x, bits.y, bits.z, bits.w};
  Pack values;
#pragma unroll
  for (int k = 0; k < kPack / 2; ++k) {
    values.at[2 * k] = __uint_as_float(words[k] << 16);
    values.at[2 * k + 1] = __uint_as_float(words[k] & 0xFFFF0000u);
  }
  return values;
}

__device__ inline uint4 pack(const Pack& values) {
  std::uint32_t words[kPack / 2];
#pragma unroll
  for (int k = 0; k < kPack / 2; ++k) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values.at[2 * k], values.at[2 * k + 1]);
    memcpy(&words[k], &pair, sizeof pair);
  }
  return {words[0], words[1], words[2], words[3]};
}

__device__ inline uint4 load_bits(const __nv_bfloat16* from) { return *reinterpret_cast<const uint4*>(from); }

/// The first `valid` numbers, then zeros. A whole pack must be aligned.
__device__ inline Pack load(const __nv_bfloat16* from, int valid = kPack) {
  if (valid == kPack) return unpack(load_bits(from));
  Pack values{};
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    if (k < valid) values.at[k] = __bfloat162float(from[k]);
  }
  return values;
}

__device__ inline void store(__nv_bfloat16* to, const Pack& values, int valid = kPack) {
  if (valid == kPack) {
    *reinterpret_cast<uint4*>(to) = pack(values);
    return;
  }
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    if (k < valid) to[k] = __float2bfloat16_rn(values.at[k]);
  }
}

/// f of each number.
template <typename F, typename... Packs>
__device__ Pack each(F f, const Packs&... packs) {
  Pack result;
#pragma unroll
  for (int k = 0; k < kPack; ++k) result.at[k] = f(packs.at[k]...);
  return result;
}

/// The same in all lanes; of groups of neighbours where there are several of them in a warp.
template <int kLanes = kWarp, typename F>
__device__ float warp_reduce(float value, F combine) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
  }
  return value;
}

struct Larger {
  __device__ float operator()(float left, float right) const { return fmaxf(left, right); }
};

struct Plus {
  __device__ float operator()(float left, float right) const { return left + right; }
};

__device__ inline float warp_sum(float value) { return warp_reduce(value, Plus{}); }

/// The same in all threads of a block of kThreads, in an order that is fixed.
template <int kThreads, typename F>
__device__ float block_reduce(float value, F combine) {
  __shared__ float of_warps[kThreads / kWarp];
  value = warp_reduce(value, combine);
  __syncthreads();  // all have read what an earlier call left
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  float result = of_warps[0];
#pragma unroll
  for (int w = 1; w < kThreads / kWarp; ++w) result = combine(result, of_warps[w]);
  return result;
}

template <typename F, typename... Inputs>
__global__ __launch_bounds__(kMapThreads) void map_kernel(std::size_t count, __nv_bfloat16* output, F f,
                                                          const Inputs*... inputs) {
  const std::size_t index = std::size_t{blockIdx.x} * kMapThreads + threadIdx.x;
  const std::size_t first = index * kPack;
  if (first >= count) return;
  const int valid = count - first < kPack ? static_cast<int>(count - first) : kPack;
  store(output + first, f(index, load(inputs + first, valid)...), valid);
}

/// One operation of a framework that fuses none: output = f(index of the pack, packs of the inputs...), in one launch.
template <typename F, typename... Inputs>
void map(std::size_t count, __nv_bfloat16* output, F f, cudaStream_t stream, const Inputs*... inputs) {
  require_aligned({output, inputs...});
  if (count == 0) return;
  constexpr std::size_t kTile = std::size_t{kMapThreads} * kPack;
  map_kernel<<<static_cast<unsigned>((count + kTile - 1) / kTile), kMapThreads, 0, stream>>>(count, output, f,
                                                                                             inputs...);
  check(cudaGetLastError());
}

struct Add {
  __device__ Pack operator()(std::size_t, const Pack& left, const Pack& right) const {
    return each([](float a, float b) { return a + b; }, left, right);
  }
};

}  // namespace gpulift
