#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/matmul_epilogue.hpp"
#include "kernels/matmul_rows.cuh"

namespace gpulift {
namespace {

constexpr int kThreads = 256;
constexpr double kRootTwoOverPi = 0.7978845608028654;
constexpr double kCubic = 0.044715;

__device__ double gelu(double x) { return 0.5 * x * (1 + tanh(kRootTwoOverPi * (x + kCubic * x * x * x))); }

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

unsigned blocks_for(std::int64_t elements) {
  constexpr std::int64_t kMostBlocks = 4096;
  return static_cast<unsigned>(std::clamp<std::int64_t>((elements + kThreads - 1) / kThreads, 1, kMostBlocks));
}

}  // namespace

void add_bias(double* reference, const Rows& rows, std::int64_t columns, const __nv_bfloat16* bias,
              cudaStream_t stream) {
  const std::int64_t elements = rows.count * columns;
  add_bias_kernel<<<blocks_for(elements), kThreads, 0, stream>>>(reference, rows, elements, bias);
  check(cudaGetLastError());
}

void apply_gelu(double* values, std::int64_t count, cudaStream_t stream) {
  gelu_kernel<<<blocks_for(count), kThreads, 0, stream>>>(values, count);
  check(cudaGetLastError());
}

}  // namespace gpulift
