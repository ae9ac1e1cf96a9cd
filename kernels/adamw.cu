#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/adamw.hpp"
#include "kernels/packed.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 256;

/// What is the same for all weights of a step.
template <typename T>
struct Factors {
  T beta1;
  T beta2;
  T keep;          // 1 - rate * decay
  T rate;          // over the correction of the mean
  T inverse_root;  // one over the root of the correction of the square
  T epsilon;
};

template <typename T>
Factors<T> factors_of(const AdamWRates& rates, int step) {
  const double beta1 = rates.beta1;
  const double beta2 = rates.beta2;
  return {.beta1 = static_cast<T>(beta1),
          .beta2 = static_cast<T>(beta2),
          .keep = static_cast<T>(1 - double{rates.rate} * double{rates.decay}),
          .rate = static_cast<T>(double{rates.rate} / (1 - std::pow(beta1, step))),
          .inverse_root = static_cast<T>(1 / std::sqrt(1 - std::pow(beta2, step))),
          .epsilon = static_cast<T>(rates.epsilon)};
}

__device__ Pack load(const float* from, int valid) {
  Pack values{};
  if (valid == kPack) {
    const float4 low = *reinterpret_cast<const float4*>(from);
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    return {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  }
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    if (k < valid) values.at[k] = from[k];
  }
  return values;
}

__device__ void store(float* to, const Pack& values, int valid) {
  if (valid == kPack) {
    *reinterpret_cast<float4*>(to) = {values.at[0], values.at[1], values.at[2], values.at[3]};
    *reinterpret_cast<float4*>(to + 4) = {values.at[4], values.at[5], values.at[6], values.at[7]};
    return;
  }
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    if (k < valid) to[k] = values.at[k];
  }
}

__global__ __launch_bounds__(kThreads) void pieces_kernel(const AdamWTensor* tensors, const TensorPiece* pieces,
                                                          Factors<float> factors) {
  const TensorPiece piece = pieces[blockIdx.x];
  const AdamWTensor tensor = tensors[piece.tensor];
  const std::size_t start = std::size_t{piece.index} * kAdamWPiece;
  const std::size_t end = min(tensor.count, start + kAdamWPiece);
  for (std::size_t i = start + std::size_t{threadIdx.x} * kPack; i < end; i += std::size_t{kThreads} * kPack) {
    const int valid = end - i < kPack ? static_cast<int>(end - i) : kPack;
    const Pack gradient = gpulift::load(tensor.gradient + i, valid);
    Pack master = load(tensor.master + i, valid);
    Pack mean = load(tensor.mean + i, valid);
    Pack square = load(tensor.square + i, valid);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const float g = gradient.at[k];
      mean.at[k] = g + factors.beta1 * (mean.at[k] - g);
      square.at[k] = g * g + factors.beta2 * (square.at[k] - g * g);
      const float root = sqrtf(square.at[k]) * factors.inverse_root + factors.epsilon;
      master.at[k] = factors.keep * master.at[k] - factors.rate * mean.at[k] / root;
    }
    store(tensor.mean + i, mean, valid);
    store(tensor.square + i, square, valid);
    store(tensor.master + i, master, valid);
    gpulift::store(tensor.weight + i, master, valid);
  }
}

__global__ __launch_bounds__(kThreads) void reference_kernel(AdamWTensor tensor, Factors<double> factors) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= tensor.count) return;
  const double g = static_cast<double>(__bfloat162float(tensor.gradient[i]));
  const double mean = factors.beta1 * static_cast<double>(tensor.mean[i]) + (1 - factors.beta1) * g;
  const double square = factors.beta2 * static_cast<double>(tensor.square[i]) + (1 - factors.beta2) * g * g;
  const double update = factors.rate * mean / (sqrt(square) * factors.inverse_root + factors.epsilon);
  tensor.mean[i] = static_cast<float>(mean);
  tensor.square[i] = static_cast<float>(square);
  tensor.master[i] = static_cast<float>(factors.keep * static_cast<double>(tensor.master[i]) - update);
}

}  // namespace

void adamw(const AdamWTensor* tensors, const TensorPiece* pieces, std::size_t piece_count, const AdamWRates& rates,
           int step, cudaStream_t stream) {
  if (step < 1) throw std::invalid_argument("adamw: steps count from 1");
  if (piece_count == 0) return;
  pieces_kernel<<<static_cast<unsigned>(piece_count), kThreads, 0, stream>>>(tensors, pieces,
                                                                             factors_of<float>(rates, step));
  check(cudaGetLastError());
}

void adamw_reference(const AdamWTensor& tensor, const AdamWRates& rates, int step, cudaStream_t stream) {
  if (tensor.count == 0) return;
  const auto blocks = static_cast<unsigned>((tensor.count + kThreads - 1) / kThreads);
  reference_kernel<<<blocks, kThreads, 0, stream>>>(tensor, factors_of<double>(rates, step));
  check(cudaGetLastError());
}

}  // namespace gpulift
