#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "core/cuda/check.hpp"
#include "kernels/fill.hpp"
#include "kernels/normal.cuh"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kMaxBlocks = 4096;  // the kernels stride over the rest

unsigned blocks_for(std::size_t items) {
  return static_cast<unsigned>(std::min((items + kThreads - 1) / kThreads, kMaxBlocks));
}

template <typename T>
__global__ void normal_kernel(T* data, std::size_t count, std::uint64_t seed, float deviation) {
  const std::size_t pairs = (count + 1) / 2;
  for (std::size_t pair = std::size_t{blockIdx.x} * kThreads + threadIdx.x; pair < pairs;
       pair += std::size_t{gridDim.x} * kThreads) {
    const float2 normal = standard_normals(random_bits(seed, pair));
    data[2 * pair] = static_cast<T>(deviation * normal.x);
    if (2 * pair + 1 < count) data[2 * pair + 1] = static_cast<T>(deviation * normal.y);
  }
}

__global__ void pattern_kernel(std::uint64_t* data, std::size_t bytes, std::uint64_t seed, std::uint64_t first_word) {
  const std::size_t words = bytes / 8;
  const std::size_t start = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (std::size_t i = start; i < words; i += std::size_t{gridDim.x} * kThreads) {
    data[i] = random_bits(seed, first_word + i);
  }
  if (start < bytes % 8) {
    const std::uint64_t last = random_bits(seed, first_word + words);
    reinterpret_cast<unsigned char*>(data + words)[start] = static_cast<unsigned char>(last >> (8 * start));
  }
}

template <typename T>
void launch_normal(T* data, std::size_t count, std::uint64_t seed, cudaStream_t stream, float deviation) {
  if (count == 0) return;
  normal_kernel<<<blocks_for((count + 1) / 2), kThreads, 0, stream>>>(data, count, seed, deviation);
  check(cudaGetLastError());
}

}  // namespace

void fill_normal(float* data, std::size_t count, std::uint64_t seed, cudaStream_t stream, float deviation) {
  launch_normal(data, count, seed, stream, deviation);
}

void fill_normal(__half* data, std::size_t count, std::uint64_t seed, cudaStream_t stream, float deviation) {
  launch_normal(data, count, seed, stream, deviation);
}

void fill_normal(__nv_bfloat16* data, std::size_t count, std::uint64_t seed, cudaStream_t stream, float deviation) {
  launch_normal(data, count, seed, stream, deviation);
}

void fill_pattern(void* data, std::size_t bytes, std::uint64_t seed, cudaStream_t stream, std::uint64_t first_word) {
  if (reinterpret_cast<std::uintptr_t>(data) % 8 != 0) {
    throw std::invalid_argument("fill_pattern: the data must be aligned to 8 bytes");
  }
  if (bytes == 0) return;
  pattern_kernel<<<blocks_for((bytes + 7) / 8), kThreads, 0, stream>>>(static_cast<std::uint64_t*>(data), bytes, seed,
                                                                       first_word);
  check(cudaGetLastError());
}

}  // namespace gpulift
