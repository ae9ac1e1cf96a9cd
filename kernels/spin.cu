#include "core/cuda/check.hpp"
#include "kernels/spin.hpp"

namespace gpulift {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;

/// Nobody waits for the addition, so that it costs the kernel no round trip to memory.
__device__ void count_launch(std::uint64_t* counter) {
  static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
  if (counter != nullptr && threadIdx.x == 0) atomicAdd(reinterpret_cast<unsigned long long*>(counter), 1ull);
}

__global__ void empty_kernel(std::uint64_t* counter) { count_launch(counter); }

__global__ void spin_kernel(std::int64_t cycles, std::uint64_t* counter) {
  const std::int64_t start = clock64();
  count_launch(counter);
  while (clock64() - start < cycles) {
  }
}

__global__ __launch_bounds__(kThreads) void fma_chain_kernel(const float* input, float* output, std::size_t count,
                                                             int iterations) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  float x = input[i];
#pragma unroll 16
  for (int round = 0; round < iterations; ++round) x = fmaf(x, kChainMultiplier, kChainSummand);
  output[i] = x;
}

}  // namespace

void launch_empty(std::uint64_t* counter, cudaStream_t stream) {
  empty_kernel<<<1, kWarp, 0, stream>>>(counter);
  check(cudaGetLastError());
}

void spin(std::int64_t cycles, std::uint64_t* counter, cudaStream_t stream) {
  spin_kernel<<<1, kWarp, 0, stream>>>(cycles, counter);
  check(cudaGetLastError());
}

void fma_chain(const float* input, float* output, std::size_t count, int iterations, cudaStream_t stream) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  fma_chain_kernel<<<blocks, kThreads, 0, stream>>>(input, output, count, iterations);
  check(cudaGetLastError());
}

}  // namespace gpulift
