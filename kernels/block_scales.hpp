#pragma once
// How MXFP8 and NVFP4 round, the same on the host and on the device, and where cuBLASLt reads their scales.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>  // __host__, __device__

#include <cstdint>
#include <cstring>

namespace gpulift {

constexpr int kMxfp8Block = 32;  // numbers of a row that share a scale
constexpr int kNvfp4Block = 16;
constexpr float kLargestE4m3 = 448;
constexpr float kLargestE2m1 = 6;

/// E8M0, a power of two: the least by which no number of the block is beyond the largest E4M3. The specification's own
/// rule, which rounds down, would cut off up to an eighth of the largest; NVIDIA's libraries round up.
__host__ __device__ inline std::uint8_t mxfp8_scale(float largest) {
  return __nv_cvt_float_to_e8m0(largest / kLargestE4m3, __NV_SATFINITE, cudaRoundPosInf);
}

/// What the numbers of a block are multiplied by: 2^(127 - scale), exactly.
__host__ __device__ inline float mxfp8_factor(std::uint8_t scale) {
  constexpr std::uint32_t kTwiceBias = 254;
  const std::uint32_t exponent = kTwiceBias - scale;
  const std::uint32_t bits = exponent > 0 ? exponent << 23 : 1u << 22;  // 2^-127 is no normal number
  float factor = 0;
  memcpy(&factor, &bits, sizeof factor);
  return factor;
}

/// Not a number where the scale is none.
__host__ __device__ inline float mxfp8_value(std::uint8_t scale) {
  return __bfloat162float(__nv_bfloat16(__nv_cvt_e8m0_to_bf16raw(scale)));
}

/// What of a matrix is common to all blocks, so that their scales, too, use all of E4M3. 1 where all numbers are zeros.
__host__ __device__ inline float nvfp4_tensor_scale(float largest) {
  return largest > 0 ? largest / (kLargestE4m3 * kLargestE2m1) : 1.0f;
}

/// E4M3: the block's largest number becomes about 6, the largest E2M1.
__host__ __device__ inline std::uint8_t nvfp4_scale(float largest, float tensor_scale) {
  return __nv_cvt_float_to_fp8(largest / kLargestE2m1 / tensor_scale, __NV_SATFINITE, __NV_E4M3);
}

__host__ __device__ inline float e4m3_value(std::uint8_t bits) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)));
}

/// What the numbers of a block are multiplied by. A block whose scale is rounded to 0 becomes zeros.
__host__ __device__ inline float nvfp4_factor(std::uint8_t scale, float tensor_scale) {
  const float scaled = e4m3_value(scale) * tensor_scale;
  return scaled > 0 ? 1.0f / scaled : 0.0f;
}

/// Two numbers in a byte, the first in its lower half.
__host__ __device__ inline std::uint8_t e2m1_pair(float first, float second) {
  return __nv_cvt_float2_to_fp4x2({first, second}, __NV_E2M1, cudaRoundNearest);
}

/// Of the lower half of a byte.
__host__ __device__ inline float e2m1_value(int bits) {
  return __half2float(__half(__nv_cvt_fp4_to_halfraw(static_cast<__nv_fp4_storage_t>(bits & 0xF), __NV_E2M1)));
}

/// Scales lie in tiles of 128 rows by 4 blocks, one tile of a row of tiles behind the other; in a tile those of rows 32
/// apart are neighbours ("1D block scaling factors layout" in cuBLASLt's documentation). `blocks` of a row, a multiple
/// of 4.
__host__ __device__ inline std::int64_t block_scale_place(std::int64_t row, std::int64_t block, std::int64_t blocks) {
  constexpr std::int64_t kRows = 128;
  constexpr std::int64_t kBlocks = 4;
  constexpr std::int64_t kApart = 32;
  const std::int64_t tile = row / kRows * (blocks / kBlocks) + block / kBlocks;
  return tile * (kRows * kBlocks) + row % kApart * (kRows / kApart * kBlocks) + row % kRows / kApart * kBlocks +
         block % kBlocks;
}

}  // namespace gpulift
