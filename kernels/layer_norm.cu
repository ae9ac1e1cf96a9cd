#include "kernels/layer_norm.hpp"
#include "kernels/layer_norm_rows.cuh"

namespace gpulift {
namespace {

struct Statistics {
  float mean;
  float rstd;
};

template <int kTeam, int kVectors, bool kCentred>
__device__ Statistics statistics_of(const Pack (&held)[kVectors], const NormShape& shape) {
  const auto columns = static_cast<float>(shape.columns);
  float mean = 0;
  if constexpr (kCentred) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) mean += held[v].at[k];  // zeros behind the row's end
    }
    mean = team_sum<kTeam>(mean) / columns;
  }
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (column_of<kTeam>(v) >= shape.columns) continue;
#pragma unroll
    for (int k = 0; k < kPack; ++k) squares += (held[v].at[k] - mean) * (held[v].at[k] - mean);
  }
  return {mean, rsqrtf(team_sum<kTeam>(squares) / columns + shape.epsilon)};
}

/// Adds where there is an input, and normalises where there is an output.
template <int kTeam, int kVectors, bool kCentred>
__global__ __launch_bounds__(kNormThreads) void forward_kernel(NormShape shape, NormTensors tensors) {
  const std::size_t row = std::size_t{blockIdx.x} * (kNormThreads / kTeam) + threadIdx.x / kTeam;
  if (row >= shape.rows) return;
  const std::size_t start = row * static_cast<std::size_t>(shape.columns);
  uint4 input[kVectors];  // all loads first: behind the store of a sum the next would wait for it
  uint4 residual[kVectors] = {};
  const bool adds = tensors.input != nullptr;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = column_of<kTeam>(v);
    const bool inside = column < shape.columns;
    input[v] = inside ? load_bits((adds ? tensors.input : tensors.sum) + start + column) : uint4{};
    if (inside && adds) residual[v] = load_bits(tensors.residual + start + column);
  }
  Pack held[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    // Rounded, as the backward pass will read it.
    const uint4 sum = adds ? pack(Add{}(0, unpack(input[v]), unpack(residual[v]))) : input[v];
    if (adds && column_of<kTeam>(v) < shape.columns) {
      *reinterpret_cast<uint4*>(tensors.sum + start + column_of<kTeam>(v)) = sum;
    }
    held[v] = unpack(sum);
  }
  const Statistics found = statistics_of<kTeam, kVectors, kCentred>(held, shape);
  if (threadIdx.x % kTeam == 0) {
    tensors.mean[row] = found.mean;
    tensors.rstd[row] = found.rstd;
  }
  if (tensors.output == nullptr) return;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = column_of<kTeam>(v);
    if (column >= shape.columns) continue;
    const Pack weight = load(tensors.weight + column);
    const Pack bias = kCentred ? load(tensors.bias + column) : Pack{};
    store(
        tensors.output + start + column,
        each([&](float x, float w, float b) { return (x - found.mean) * found.rstd * w + b; }, held[v], weight, bias));
  }
}

}  // namespace

void norm_forward(const NormShape& shape, const NormTensors& tensors, cudaStream_t stream) {
  require(shape, tensors);
  if (shape.rows == 0) return;
  with_constants(shape, [&]<int kTeam, int kVectors, bool kCentred>() {
    forward_kernel<kTeam, kVectors, kCentred>
        <<<blocks_of(shape.rows, kNormThreads / kTeam), kNormThreads, 0, stream>>>(shape, tensors);
  });
  check(cudaGetLastError());
}

}  // namespace gpulift
