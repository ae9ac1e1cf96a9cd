#include <algorithm>
#include <stdexcept>

#include "core/cuda/check.hpp"
#include "kernels/matmul_epilogue.hpp"
#include "kernels/matmul_rows.cuh"

namespace gpulift {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 8;  // BF16 numbers in 16 bytes
constexpr double kRootTwoOverPi = 0.7978845608028654;
constexpr double kCubic = 0.044715;

struct alignas(16) Pack {
  __nv_bfloat162 pairs[kPack / 2];
};

/// x / (1 + exp(-2 u)) is x (1 + tanh u) / 2.
__device__ float gelu(float x) {
  const float u = static_cast<float>(kRootTwoOverPi) * (x + static_cast<float>(kCubic) * x * x * x);
  return __fdividef(x, 1.0f + __expf(-2.0f * u));
}

__device__ double gelu(double x) { return 0.5 * x * (1 + tanh(kRootTwoOverPi * (x + kCubic * x * x * x))); }

__global__ void bias_gelu_kernel(const Pack* from, const Pack* bias, Pack* to, std::int64_t packs,
                                 std::int64_t packs_per_column) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= packs) return;
  Pack values = from[i];
  const Pack added = bias[i % packs_per_column];
#pragma unroll
  for (int pair = 0; pair < kPack / 2; ++pair) {
    const float2 x = __bfloat1622float2(values.pairs[pair]);
    const float2 b = __bfloat1622float2(added.pairs[pair]);
    values.pairs[pair] = __floats2bfloat162_rn(gelu(x.x + b.x), gelu(x.y + b.y));
  }
  to[i] = values;
}

__global__ void add_bias_kernel(double* reference, Rows rows, std::int64_t elements, const __nv_bfloat16* bias) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    reference[i] += static_cast<double>(__bfloat162float(bias[row_number(rows, i % rows.count)]));
  }
}

__global__ void gelu_kernel(double* values, std::int64_t elements) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    values[i] = gelu(values[i]);
  }
}

unsigned blocks_for(std::int64_t elements) { return static_cast<unsigned>((elements + kThreads - 1) / kThreads); }

/// For kernels that loop.
unsigned few_blocks_for(std::int64_t elements) {
  constexpr unsigned kMostBlocks = 4096;
  return std::clamp(blocks_for(elements), 1U, kMostBlocks);
}

}  // namespace

void bias_gelu(const __nv_bfloat16* from, const __nv_bfloat16* bias, __nv_bfloat16* to, std::int64_t rows,
               std::int64_t columns, cudaStream_t stream) {
  if (rows % kPack != 0) throw std::invalid_argument("bias_gelu: the rows must be a multiple of 8");
  const std::int64_t packs = rows / kPack * columns;
  if (packs == 0) return;
  bias_gelu_kernel<<<blocks_for(packs), kThreads, 0, stream>>>(reinterpret_cast<const Pack*>(from),
                                                               reinterpret_cast<const Pack*>(bias),
                                                               reinterpret_cast<Pack*>(to), packs, rows / kPack);
  check(cudaGetLastError());
}

void add_bias(double* reference, const Rows& rows, std::int64_t columns, const __nv_bfloat16* bias,
              cudaStream_t stream) {
  const std::int64_t elements = rows.count * columns;
  add_bias_kernel<<<few_blocks_for(elements), kThreads, 0, stream>>>(reference, rows, elements, bias);
  check(cudaGetLastError());
}

void apply_gelu(double* values, std::int64_t count, cudaStream_t stream) {
  gelu_kernel<<<few_blocks_for(count), kThreads, 0, stream>>>(values, count);
  check(cudaGetLastError());
}

}  // namespace gpulift
