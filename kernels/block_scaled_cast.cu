#include <stdexcept>

#include "kernels/block_scaled_cast.hpp"
#include "kernels/block_scales.hpp"
#include "kernels/packed.hpp"
#include "kernels/tensor_largest.cuh"

namespace gpulift {
namespace {

constexpr int kThreads = 256;
constexpr int kSide = 128;  // of a tile of scales, in rows; columns of a multiple of it fill tiles in both formats

/// The numbers of a pack in a format, and what a block's scale makes of them.
struct Mxfp8 {
  static constexpr int kBlock = kMxfp8Block;
  struct alignas(8) Bytes {
    __nv_fp8x2_storage_t pairs[kPack / 2];
  };

  __device__ void prepare() {}
  __device__ std::uint8_t scale_for(float largest) const { return mxfp8_scale(largest); }
  __device__ Bytes cast(const Pack& numbers, std::uint8_t scale) const {
    const float factor = mxfp8_factor(scale);
    Bytes result;
#pragma unroll
    for (int k = 0; k < kPack / 2; ++k) {
      result.pairs[k] = __nv_cvt_float2_to_fp8x2({numbers.at[2 * k] * factor, numbers.at[2 * k + 1] * factor},
                                                 __NV_SATFINITE, __NV_E4M3);
    }
    return result;
  }
};

struct Nvfp4 {
  static constexpr int kBlock = kNvfp4Block;
  struct alignas(4) Bytes {
    std::uint8_t pairs[kPack / 2];
  };
  const float* largest;  // as find_largest() leaves it
  float* tensor_scale_out;
  float tensor_scale;

  __device__ void prepare() {
    tensor_scale = nvfp4_tensor_scale(largest_found<kThreads>(largest));
    if (blockIdx.x == 0 && threadIdx.x == 0) *tensor_scale_out = tensor_scale;
  }
  __device__ std::uint8_t scale_for(float of_block) const { return nvfp4_scale(of_block, tensor_scale); }
  __device__ Bytes cast(const Pack& numbers, std::uint8_t scale) const {
    const float factor = nvfp4_factor(scale, tensor_scale);
    Bytes result;
#pragma unroll
    for (int k = 0; k < kPack / 2; ++k) {
      result.pairs[k] = e2m1_pair(numbers.at[2 * k] * factor, numbers.at[2 * k + 1] * factor);
    }
    return result;
  }
};

/// Two packs a thread, as all threads of NVFP4 read what was found of the whole matrix. Both sides being multiples of
/// 128, so are the packs of 2 kThreads, and those that share a scale are neighbours in a warp.
constexpr int kUnroll = 2;

template <typename Format>
__global__ __launch_bounds__(kThreads) void cast_blocks_kernel(const uint4* from, std::int64_t packs_per_row,
                                                               Format format, typename Format::Bytes* to,
                                                               std::uint8_t* scales) {
  constexpr int kLanes = Format::kBlock / kPack;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kUnroll) + threadIdx.x;
  uint4 held[kUnroll];
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) held[k] = from[first + k * kThreads];
  format.prepare();
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    const std::int64_t i = first + k * kThreads;
    const std::uint8_t scale = format.scale_for(warp_reduce<kLanes>(largest_of(held[k]), Larger{}));
    if (i % kLanes == 0) {
      scales[block_scale_place(i / packs_per_row, i % packs_per_row / kLanes, packs_per_row / kLanes)] = scale;
    }
    to[i] = format.cast(unpack(held[k]), scale);
  }
}

template <typename Format>
void cast(const __nv_bfloat16* from, std::int64_t rows, std::int64_t columns, const Format& format,
          const BlockScaled& to, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(rows * columns / (kPack * kThreads * kUnroll));
  cast_blocks_kernel<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(from), columns / kPack, format,
                                                      reinterpret_cast<typename Format::Bytes*>(to.numbers), to.scales);
  check(cudaGetLastError());
}

__global__ void multiply_kernel(const float* a, const float* b, float* product) { *product = *a * *b; }

__global__ __launch_bounds__(kThreads) void restore_kernel(BlockFormat format, BlockScaled from, std::int64_t columns,
                                                           std::int64_t count, float* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const bool is_mxfp8 = format == BlockFormat::kMxfp8;
  const int block = is_mxfp8 ? kMxfp8Block : kNvfp4Block;
  const std::uint8_t scale = from.scales[block_scale_place(i / columns, i % columns / block, columns / block)];
  to[i] = is_mxfp8 ? e4m3_value(from.numbers[i]) * mxfp8_value(scale)
                   : e2m1_value(from.numbers[i / 2] >> (i % 2 * 4)) * (e4m3_value(scale) * *from.tensor_scale);
}

}  // namespace

std::int64_t block_scaled_bytes(BlockFormat format, std::int64_t numbers) {
  return format == BlockFormat::kMxfp8 ? numbers : numbers / 2;
}

std::size_t block_scales(BlockFormat format, std::int64_t rows, std::int64_t columns) {
  if (rows <= 0 || columns <= 0 || rows % kSide != 0 || columns % kSide != 0) {
    throw std::invalid_argument("block_scales: both sides are multiples of 128");
  }
  return static_cast<std::size_t>(rows * columns / (format == BlockFormat::kMxfp8 ? kMxfp8Block : kNvfp4Block));
}

std::size_t tensor_scales(BlockFormat format) { return format == BlockFormat::kMxfp8 ? 0 : 1 + kLargestBlocks; }

void cast_to_blocks(BlockFormat format, const __nv_bfloat16* from, std::int64_t rows, std::int64_t columns,
                    const BlockScaled& to, cudaStream_t stream) {
  static_cast<void>(block_scales(format, rows, columns));  // throws
  if (format == BlockFormat::kMxfp8) return cast(from, rows, columns, Mxfp8{}, to, stream);
  float* const largest = to.tensor_scale + 1;
  find_largest(from, rows * columns / kPack, largest, stream);
  cast(from, rows, columns, Nvfp4{largest, to.tensor_scale, 1}, to, stream);
}

void multiply_tensor_scales(const float* a, const float* b, float* product, cudaStream_t stream) {
  multiply_kernel<<<1, 1, 0, stream>>>(a, b, product);
  check(cudaGetLastError());
}

void restore_from_blocks(BlockFormat format, const BlockScaled& from, std::int64_t rows, std::int64_t columns,
                         float* to, cudaStream_t stream) {
  static_cast<void>(block_scales(format, rows, columns));  // throws
  const std::int64_t count = rows * columns;
  restore_kernel<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, stream>>>(format, from,
                                                                                                    columns, count, to);
  check(cudaGetLastError());
}

}  // namespace gpulift
