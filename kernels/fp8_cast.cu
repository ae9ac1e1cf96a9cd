#include <algorithm>
#include <stdexcept>

#include "kernels/fp8_cast.hpp"
#include "kernels/packed.hpp"

namespace gpulift {
namespace {

constexpr int kPart = 128;
constexpr int kThreads = 256;
constexpr int kRowThreads = 128;
constexpr float kLargest = 448;

struct alignas(kPack) Fp8Pack {
  __nv_fp8x2_storage_t pairs[kPack / 2];
};

__device__ float largest_of(const Pack& pack) {
  float largest = 0;
#pragma unroll
  for (int k = 0; k < kPack; ++k) largest = fmaxf(largest, fabsf(pack.at[k]));
  return largest;
}

/// 1 where all numbers are zeros.
__device__ float scale_for(float largest) { return largest > 0 ? largest / kLargest : 1.0f; }

__device__ Fp8Pack divided(const Pack& pack, float scale) {
  const float factor = 1.0f / scale;
  Fp8Pack result;
#pragma unroll
  for (int k = 0; k < kPack / 2; ++k) {
    result.pairs[k] =
        __nv_cvt_float2_to_fp8x2({pack.at[2 * k] * factor, pack.at[2 * k + 1] * factor}, __NV_SATFINITE, __NV_E4M3);
  }
  return result;
}

/// Over groups of `Lanes` neighbours of a warp.
template <int Lanes>
__device__ float largest_in_lanes(float value) {
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
  }
  return value;
}

/// Over the block, for all of its threads. All of them call it, and once.
template <int Threads>
__device__ float largest_in_block(float value) {
  __shared__ float of_warps[Threads / kWarp];
  value = largest_in_lanes<kWarp>(value);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  float largest = 0;
#pragma unroll
  for (int warp = 0; warp < Threads / kWarp; ++warp) largest = fmaxf(largest, of_warps[warp]);
  return largest;
}

/// `largest` begins as 0: of numbers that are not negative, the bits are in the order of the numbers.
__global__ void largest_kernel(const uint4* from, std::int64_t packs, unsigned* largest) {
  float own = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < packs; i += step) {
    own = fmaxf(own, largest_of(unpack(from[i])));
  }
  own = largest_in_block<kThreads>(own);
  if (threadIdx.x == 0) atomicMax(largest, __float_as_uint(own));
}

__global__ void cast_tensor_kernel(const uint4* from, std::int64_t packs, Fp8Pack* to, const float* largest,
                                   float* scale_out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const float scale = scale_for(*largest);
  if (i == 0) *scale_out = scale;
  if (i < packs) to[i] = divided(unpack(from[i]), scale);
}

/// A block per row.
__global__ void cast_rows_kernel(const uint4* from, std::int64_t packs_per_row, Fp8Pack* to, float* scales) {
  const uint4* const row = from + blockIdx.x * packs_per_row;
  float own = 0;
  for (std::int64_t i = threadIdx.x; i < packs_per_row; i += kRowThreads) own = fmaxf(own, largest_of(unpack(row[i])));
  const float scale = scale_for(largest_in_block<kRowThreads>(own));
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  Fp8Pack* const out = to + blockIdx.x * packs_per_row;
  for (std::int64_t i = threadIdx.x; i < packs_per_row; i += kRowThreads) out[i] = divided(unpack(row[i]), scale);
}

/// 16 threads for each 128 columns of a row. Scales of a row's parts are a whole column of scales apart.
__global__ void cast_vectors_kernel(const uint4* from, std::int64_t rows, std::int64_t packs_per_row, Fp8Pack* to,
                                    float* scales) {
  constexpr int kLanes = kPart / kPack;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const bool inside = i < rows * packs_per_row;  // whole groups of 16 are, or are not
  const Pack numbers = inside ? unpack(from[i]) : Pack{};
  const float scale = scale_for(largest_in_lanes<kLanes>(largest_of(numbers)));
  if (!inside) return;
  if (i % kLanes == 0) scales[i % packs_per_row / kLanes * rows + i / packs_per_row] = scale;
  to[i] = divided(numbers, scale);
}

/// A block per tile; tiles of the columns are blockIdx.x, so that their scales lie side by side.
__global__ void cast_tiles_kernel(const uint4* from, std::int64_t packs_per_row, Fp8Pack* to, float* scales,
                                  std::int64_t scales_per_tile_row) {
  constexpr int kPacksWide = kPart / kPack;
  constexpr int kEach = kPart * kPacksWide / kThreads;
  const std::int64_t first = blockIdx.y * kPart * packs_per_row + blockIdx.x * kPacksWide;
  uint4 held[kEach];
  float own = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int place = k * kThreads + static_cast<int>(threadIdx.x);
    held[k] = from[first + place / kPacksWide * packs_per_row + place % kPacksWide];
    own = fmaxf(own, largest_of(unpack(held[k])));
  }
  const float scale = scale_for(largest_in_block<kThreads>(own));
  if (threadIdx.x == 0) scales[blockIdx.y * scales_per_tile_row + blockIdx.x] = scale;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int place = k * kThreads + static_cast<int>(threadIdx.x);
    to[first + place / kPacksWide * packs_per_row + place % kPacksWide] = divided(unpack(held[k]), scale);
  }
}

unsigned blocks_for(std::int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

/// cuBLASLt wants the scales of a row of tiles to begin at multiples of 4 of them.
std::int64_t scales_per_tile_row(std::int64_t columns) { return (columns / kPart + 3) / 4 * 4; }

void require_sides(ScaledPart part, std::int64_t rows, std::int64_t columns) {
  const bool in_parts = part == ScaledPart::kVector || part == ScaledPart::kTile;
  if (rows <= 0 || columns <= 0 || columns % (in_parts ? kPart : kPack) != 0 ||
      (part == ScaledPart::kTile && rows % kPart != 0)) {
    throw std::invalid_argument("fp8_cast: sides that its scales do not divide");
  }
}

}  // namespace

std::size_t fp8_scales(ScaledPart part, std::int64_t rows, std::int64_t columns) {
  require_sides(part, rows, columns);
  switch (part) {
    case ScaledPart::kTensor:
      return 2;  // the scale, and the largest number that it is made from
    case ScaledPart::kRow:
      return static_cast<std::size_t>(rows);
    case ScaledPart::kVector:
      return static_cast<std::size_t>(rows * (columns / kPart));
    case ScaledPart::kTile:
      return static_cast<std::size_t>(rows / kPart * scales_per_tile_row(columns));
  }
  throw std::invalid_argument("fp8_scales: no such part");
}

void cast_to_fp8(ScaledPart part, const __nv_bfloat16* from, std::int64_t rows, std::int64_t columns, __nv_fp8_e4m3* to,
                 float* scales, cudaStream_t stream) {
  require_sides(part, rows, columns);
  const auto* in = reinterpret_cast<const uint4*>(from);
  auto* out = reinterpret_cast<Fp8Pack*>(to);
  const std::int64_t packs_per_row = columns / kPack;
  const std::int64_t packs = rows * packs_per_row;
  switch (part) {
    case ScaledPart::kTensor: {
      constexpr unsigned kMostBlocks = 2048;
      float* const largest = scales + 1;
      check(cudaMemsetAsync(largest, 0, sizeof *largest, stream));
      largest_kernel<<<std::min(blocks_for(packs), kMostBlocks), kThreads, 0, stream>>>(
          in, packs, reinterpret_cast<unsigned*>(largest));
      cast_tensor_kernel<<<blocks_for(packs), kThreads, 0, stream>>>(in, packs, out, largest, scales);
      break;
    }
    case ScaledPart::kRow:
      cast_rows_kernel<<<static_cast<unsigned>(rows), kRowThreads, 0, stream>>>(in, packs_per_row, out, scales);
      break;
    case ScaledPart::kVector:
      cast_vectors_kernel<<<blocks_for(packs), kThreads, 0, stream>>>(in, rows, packs_per_row, out, scales);
      break;
    case ScaledPart::kTile: {
      const dim3 tiles(static_cast<unsigned>(columns / kPart), static_cast<unsigned>(rows / kPart));
      cast_tiles_kernel<<<tiles, kThreads, 0, stream>>>(in, packs_per_row, out, scales, scales_per_tile_row(columns));
      break;
    }
  }
  check(cudaGetLastError());
}

}  // namespace gpulift
