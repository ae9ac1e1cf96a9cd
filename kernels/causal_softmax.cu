#include <cuda_bf16.h>

#include <cstdint>
#include <limits>
#include <stdexcept>

#include "core/cuda/check.hpp"
#include "kernels/causal_softmax.hpp"

namespace gpulift {
namespace {

constexpr int kWarp = 32;
constexpr int kMostThreads = 256;

/// What one load or store moves.
template <typename T>
struct alignas(16) Vector {
  static constexpr int kWidth = 16 / sizeof(T);
  T elements[kWidth];
};

struct Larger {
  __device__ float operator()(float left, float right) const { return fmaxf(left, right); }
};
struct Plus {
  __device__ float operator()(float left, float right) const { return left + right; }
};

/// Over all threads of the block, which are whole warps; in every thread.
template <typename Operation>
__device__ float reduced(float value, Operation operation) {
  __shared__ float of_warps[kMostThreads / kWarp];
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = operation(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = of_warps[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) value = operation(value, of_warps[warp]);
  return value;
}

/// A block for each row, which its threads hold in registers.
template <typename T, int kElements>
__global__ __launch_bounds__(kMostThreads) void softmax_kernel(T* scores, int columns, float scale) {
  constexpr int kWidth = Vector<T>::kWidth;
  constexpr int kVectors = kElements / kWidth;
  const int last = static_cast<int>(blockIdx.x % static_cast<unsigned>(columns));  // that the row sees
  T* const row = scores + std::int64_t{blockIdx.x} * columns;
  float values[kVectors][kWidth];
  float largest = -INFINITY;
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int first = (vector * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kWidth;
    Vector<T> loaded{};
    if (first <= last) loaded = *reinterpret_cast<const Vector<T>*>(row + first);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      values[vector][i] = first + i <= last ? static_cast<float>(loaded.elements[i]) : -INFINITY;
      largest = fmaxf(largest, values[vector][i]);
    }
  }
  largest = reduced(largest, Larger());
  const float to_power_of_2 = scale * 1.4426950408889634F;
  float sum = 0;
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      values[vector][i] = exp2f((values[vector][i] - largest) * to_power_of_2);
      sum += values[vector][i];
    }
  }
  const float factor = 1 / reduced(sum, Plus());
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int first = (vector * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kWidth;
    if (first >= columns) continue;
    Vector<T> stored;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) stored.elements[i] = static_cast<T>(values[vector][i] * factor);
    *reinterpret_cast<Vector<T>*>(row + first) = stored;
  }
}

template <typename T, int kElements>
__global__ __launch_bounds__(kMostThreads) void gradient_kernel(const T* results, T* gradients, int columns,
                                                                float scale) {
  constexpr int kWidth = Vector<T>::kWidth;
  constexpr int kVectors = kElements / kWidth;
  const int last = static_cast<int>(blockIdx.x % static_cast<unsigned>(columns));
  const T* const result = results + std::int64_t{blockIdx.x} * columns;
  T* const gradient = gradients + std::int64_t{blockIdx.x} * columns;
  Vector<T> shares[kVectors];
  Vector<T> slopes[kVectors];
  float sum = 0;
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int first = (vector * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kWidth;
    shares[vector] = {};
    slopes[vector] = {};
    if (first > last) continue;
    shares[vector] = *reinterpret_cast<const Vector<T>*>(result + first);
    slopes[vector] = *reinterpret_cast<const Vector<T>*>(gradient + first);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      sum += static_cast<float>(shares[vector].elements[i]) * static_cast<float>(slopes[vector].elements[i]);
    }
  }
  sum = reduced(sum, Plus());
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int first = (vector * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kWidth;
    if (first >= columns) continue;
    Vector<T> stored;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float slope = static_cast<float>(slopes[vector].elements[i]) - sum;
      stored.elements[i] = static_cast<T>(scale * static_cast<float>(shares[vector].elements[i]) * slope);
    }
    *reinterpret_cast<Vector<T>*>(gradient + first) = stored;
  }
}

/// Calls `launch.template operator()<kElements>(blocks, threads)` with as few elements a thread as a row needs.
template <typename Launch>
void launch_rows(std::int64_t matrices, std::int64_t columns, const Launch& launch) {
  if (columns <= 0 || columns % 8 != 0 || columns > kMostSoftmaxColumns) {
    throw std::invalid_argument("causal_softmax: a multiple of 8 columns, at most 16384");
  }
  if (matrices * columns > std::numeric_limits<std::int32_t>::max()) {
    throw std::invalid_argument("causal_softmax: too many rows");
  }
  if (matrices == 0) return;
  const auto blocks = static_cast<unsigned>(matrices * columns);
  const auto threads = [&](int elements) {
    const auto needed = static_cast<unsigned>((columns + elements - 1) / elements);
    return (needed + kWarp - 1) / kWarp * kWarp;
  };
  if (columns <= 8 * kMostThreads) {
    launch.template operator()<8>(blocks, threads(8));
  } else if (columns <= 16 * kMostThreads) {
    launch.template operator()<16>(blocks, threads(16));
  } else if (columns <= 32 * kMostThreads) {
    launch.template operator()<32>(blocks, threads(32));
  } else {
    launch.template operator()<64>(blocks, threads(64));
  }
  check(cudaGetLastError());
}

template <typename T>
void launch_softmax(void* scores, std::int64_t matrices, std::int64_t columns, float scale, cudaStream_t stream) {
  launch_rows(matrices, columns, [&]<int kElements>(unsigned blocks, unsigned threads) {
    softmax_kernel<T, kElements>
        <<<blocks, threads, 0, stream>>>(static_cast<T*>(scores), static_cast<int>(columns), scale);
  });
}

template <typename T>
void launch_gradient(const void* results, void* gradients, std::int64_t matrices, std::int64_t columns, float scale,
                     cudaStream_t stream) {
  launch_rows(matrices, columns, [&]<int kElements>(unsigned blocks, unsigned threads) {
    gradient_kernel<T, kElements><<<blocks, threads, 0, stream>>>(
        static_cast<const T*>(results), static_cast<T*>(gradients), static_cast<int>(columns), scale);
  });
}

}  // namespace

void causal_softmax(void* scores, ElementType type, std::int64_t matrices, std::int64_t columns, float scale,
                    cudaStream_t stream) {
  if (type == ElementType::kBf16) return launch_softmax<__nv_bfloat16>(scores, matrices, columns, scale, stream);
  if (type == ElementType::kFp64) return launch_softmax<double>(scores, matrices, columns, scale, stream);
  throw std::invalid_argument("causal_softmax: bf16 and fp64 alone");
}

void causal_softmax_gradient(const void* results, void* gradients, ElementType type, std::int64_t matrices,
                             std::int64_t columns, float scale, cudaStream_t stream) {
  if (type == ElementType::kBf16) {
    return launch_gradient<__nv_bfloat16>(results, gradients, matrices, columns, scale, stream);
  }
  if (type == ElementType::kFp64) {
    return launch_gradient<double>(results, gradients, matrices, columns, scale, stream);
  }
  throw std::invalid_argument("causal_softmax_gradient: bf16 and fp64 alone");
}

}  // namespace gpulift
