#include <algorithm>
#include <cub/block/block_reduce.cuh>

#include "core/cuda/check.hpp"
#include "kernels/ordered_sum.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kStretch = 64 * kThreads;  // elements that one block sums

using Reduce = cub::BlockReduce<double, kThreads>;  // its tree is fixed

/// The sum of a block's `count` elements, in thread 0.
template <typename T>
__device__ double block_sum(const T* data, std::size_t count) {
  __shared__ typename Reduce::TempStorage storage;
  double sum = 0;
#pragma unroll 8
  for (std::size_t i = threadIdx.x; i < count; i += kThreads) sum += static_cast<double>(data[i]);
  return Reduce(storage).Sum(sum);
}

__global__ __launch_bounds__(kThreads) void stretches_kernel(const float* data, std::size_t count, double* sums) {
  const std::size_t first = blockIdx.x * kStretch;
  const double sum = block_sum(data + first, min(kStretch, count - first));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ __launch_bounds__(kThreads) void total_kernel(const double* stretches, std::size_t count, double* total) {
  const double sum = block_sum(stretches, count);
  if (threadIdx.x == 0) *total = sum;
}

std::size_t stretches(std::size_t count) { return (count + kStretch - 1) / kStretch; }

}  // namespace

std::size_t ordered_sum_results(std::size_t count) { return 1 + stretches(count); }

void ordered_sum(const float* data, std::size_t count, double* sums, cudaStream_t stream) {
  if (count > 0) {
    stretches_kernel<<<static_cast<unsigned>(stretches(count)), kThreads, 0, stream>>>(data, count, sums + 1);
    check(cudaGetLastError());
  }
  total_kernel<<<1, kThreads, 0, stream>>>(sums + 1, stretches(count), sums);
  check(cudaGetLastError());
}

}  // namespace gpulift
