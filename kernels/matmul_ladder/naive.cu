#include "core/cuda/check.hpp"
#include "kernels/matmul_ladder/bf16_words.hpp"
#include "kernels/matmul_ladder/rungs.hpp"

namespace gpulift {
namespace {

constexpr int kSide = 16;     // of a block
constexpr int kElements = 8;  // of an operand that are read at once

__global__ __launch_bounds__(kSide* kSide) void naive_kernel(LadderProduct product) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kSide + threadIdx.y;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSide + threadIdx.x;
  if (row >= product.rows || column >= product.columns) return;
  const auto* left = reinterpret_cast<const uint4*>(product.left + row * product.depth);
  const auto* right = reinterpret_cast<const uint4*>(product.right + column * product.depth);
  float sum = 0;
  for (std::int64_t i = 0; i < product.depth / kElements; ++i) {
    float a[kElements];
    float b[kElements];
    widen(left[i], a);
    widen(right[i], b);
#pragma unroll
    for (int k = 0; k < kElements; ++k) sum = fmaf(a[k], b[k], sum);
  }
  product.result[row * product.columns + column] = __float2bfloat16_rn(sum);
}

}  // namespace

void multiply_naive(const LadderProduct& product, cudaStream_t stream) {
  const auto blocks = [](std::int64_t side) { return static_cast<unsigned>((side + kSide - 1) / kSide); };
  naive_kernel<<<dim3(blocks(product.columns), blocks(product.rows)), dim3(kSide, kSide), 0, stream>>>(product);
  check(cudaGetLastError());
}

RungResources naive_resources() { return resources_of(naive_kernel, 0); }

}  // namespace gpulift
