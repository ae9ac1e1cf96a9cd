#include <algorithm>

#include "kernels/layer_norm.hpp"
#include "kernels/layer_norm_rows.cuh"

namespace gpulift {
namespace {

constexpr int kBlocksEach = 2;  // on a multiprocessor, with its 128 registers a thread

/// sums[column] over the teams of a block, whose threads hold theirs, in an order that is fixed.
template <int kTeam, int kVectors>
__device__ void add_teams(const Pack (&held)[kVectors], int columns, float* sums) {
  extern __shared__ float4 of_teams[];  // [kNormThreads / kTeam][columns]
  auto* const all = reinterpret_cast<float*>(of_teams);
  const int team = static_cast<int>(threadIdx.x) / kTeam;
  __syncthreads();  // all have read what an earlier call left
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (column_of<kTeam>(v) >= columns) continue;
    const float (&at)[kPack] = held[v].at;
    float4* const to = reinterpret_cast<float4*>(all + team * columns + column_of<kTeam>(v));
    to[0] = {at[0], at[1], at[2], at[3]};
    to[1] = {at[4], at[5], at[6], at[7]};
  }
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < columns; column += kNormThreads) {
    float sum = 0;
#pragma unroll
    for (int t = 0; t < kNormThreads / kTeam; ++t) sum += all[t * columns + column];
    sums[column] = sum;
  }
}

/// Each team walks down rows and sums its columns. Packed numbers stay packed until they are used, which keeps them to
/// 128 registers.
template <int kTeam, int kVectors, bool kCentred>
__global__ __launch_bounds__(kNormThreads, kBlocksEach) void backward_kernel(NormShape shape, NormTensors tensors) {
  constexpr int kSums = kCentred ? 2 : 1;
  constexpr int kTeams = kNormThreads / kTeam;
  const int team = static_cast<int>(threadIdx.x) / kTeam;
  Pack weight_sum[kVectors] = {};
  Pack bias_sum[kVectors] = {};
  const auto weight_of = [&](int vector) {  // from the cache, to save registers
    return column_of<kTeam>(vector) < shape.columns ? load(tensors.weight + column_of<kTeam>(vector)) : Pack{};
  };

  for (std::size_t row = std::size_t{blockIdx.x} * kTeams + team; row < shape.rows;
       row += std::size_t{gridDim.x} * kTeams) {
    const std::size_t start = row * static_cast<std::size_t>(shape.columns);
    const float mean = tensors.mean[row];
    const float rstd = tensors.rstd[row];
    uint4 gradient[kVectors];
    uint4 sum[kVectors];
    uint4 skip[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = column_of<kTeam>(v);
      const bool inside = column < shape.columns;
      gradient[v] = inside ? load_bits(tensors.output_gradient + start + column) : uint4{};
      sum[v] = inside ? load_bits(tensors.sum + start + column) : uint4{};
      skip[v] =
          inside && tensors.skip_gradient != nullptr ? load_bits(tensors.skip_gradient + start + column) : uint4{};
    }
    float mean_gradient = 0;
    float mean_product = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Pack g = unpack(gradient[v]);
      const Pack s = unpack(sum[v]);
      const Pack w = weight_of(v);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const float normalised = (s.at[k] - mean) * rstd;
        weight_sum[v].at[k] += g.at[k] * normalised;
        if constexpr (kCentred) {
          bias_sum[v].at[k] += g.at[k];
          mean_gradient += g.at[k] * w.at[k];
        }
        mean_product += g.at[k] * w.at[k] * normalised;
      }
    }
    if constexpr (kCentred) mean_gradient = team_sum<kTeam>(mean_gradient) / static_cast<float>(shape.columns);
    mean_product = team_sum<kTeam>(mean_product) / static_cast<float>(shape.columns);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (column_of<kTeam>(v) >= shape.columns) continue;
      const auto through = [&](float g, float s, float w, float past) {
        return rstd * (g * w - mean_gradient - (s - mean) * rstd * mean_product) + past;
      };
      store(tensors.sum_gradient + start + column_of<kTeam>(v),
            each(through, unpack(gradient[v]), unpack(sum[v]), weight_of(v), unpack(skip[v])));
    }
  }

  float* const partials = tensors.partials + std::size_t{blockIdx.x} * static_cast<std::size_t>(kSums * shape.columns);
  add_teams<kTeam>(weight_sum, shape.columns, partials);
  if constexpr (kCentred) add_teams<kTeam>(bias_sum, shape.columns, partials + shape.columns);
}

/// Sums of columns over slices[slices][columns]; a block of 32 x 32 threads has 32 columns.
__global__ __launch_bounds__(kWarp* kWarp) void finish_kernel(const float* slices, int slice_count, int columns,
                                                              float* sums) {
  __shared__ float held[kWarp][kWarp + 1];
  const auto lane = static_cast<int>(threadIdx.x);
  const int column = static_cast<int>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int slice = static_cast<int>(threadIdx.y); slice < slice_count; slice += kWarp) {
      sum += slices[static_cast<std::size_t>(slice) * columns + column];
    }
  }
  held[threadIdx.y][lane] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  for (int y = 0; y < kWarp; ++y) total += held[y][lane];
  sums[column] = total;
}

unsigned backward_blocks(const NormShape& shape, int multiprocessors) {
  const unsigned most = static_cast<unsigned>(kBlocksEach * multiprocessors);
  return std::max(1U, std::min(blocks_of(shape.rows, rows_of_block(shape)), most));
}

}  // namespace

std::size_t norm_partials(const NormShape& shape, int multiprocessors) {
  return std::size_t{backward_blocks(shape, multiprocessors)} * 2 * static_cast<std::size_t>(shape.columns);
}

void norm_backward(const NormShape& shape, const NormTensors& tensors, int multiprocessors, cudaStream_t stream) {
  require(shape, tensors);
  const unsigned blocks = backward_blocks(shape, multiprocessors);
  const auto shared_bytes = static_cast<std::size_t>(rows_of_block(shape) * shape.columns) * sizeof(float);
  with_constants(shape, [&]<int kTeam, int kVectors, bool kCentred>() {
    backward_kernel<kTeam, kVectors, kCentred><<<blocks, kNormThreads, shared_bytes, stream>>>(shape, tensors);
  });
  check(cudaGetLastError());
  const int sums = shape.columns * (shape.norm == Norm::kLayer ? 2 : 1);
  finish_kernel<<<blocks_of(sums, kWarp), dim3(kWarp, kWarp), 0, stream>>>(tensors.partials, static_cast<int>(blocks),
                                                                           sums, tensors.parameter_gradient);
  check(cudaGetLastError());
}

}  // namespace gpulift
