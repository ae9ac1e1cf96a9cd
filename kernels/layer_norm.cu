#include <algorithm>
#include <stdexcept>

#include "kernels/layer_norm.hpp"
#include "kernels/packed.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBlocksEach = 2;   // on a multiprocessor, of the backward pass with its 128 registers a thread
constexpr int kMostVectors = 4;  // packs of a row that a thread holds
constexpr int kWarpColumns = kMostVectors * kWarp * kPack;
constexpr int kMostColumns = kMostVectors * kThreads * kPack;

/// Threads that share a row: those of a warp up to 1024 columns, of wider rows those of a block. Thread t holds packs
/// t, t + kTeam, ... of it.
template <int kTeam>
__device__ int column_of(int vector) {
  return (vector * kTeam + static_cast<int>(threadIdx.x) % kTeam) * kPack;
}

template <int kTeam>
__device__ float team_sum(float value) {
  if constexpr (kTeam == kWarp) {
    return warp_sum(value);
  } else {
    return block_reduce<kTeam>(value, Plus{});
  }
}

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
__global__ __launch_bounds__(kThreads) void forward_kernel(NormShape shape, NormTensors tensors) {
  const std::size_t row = std::size_t{blockIdx.x} * (kThreads / kTeam) + threadIdx.x / kTeam;
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

/// sums[column] over the teams of a block, whose threads hold theirs, in an order that is fixed.
template <int kTeam, int kVectors>
__device__ void add_teams(const Pack (&held)[kVectors], int columns, float* sums) {
  extern __shared__ float4 of_teams[];  // [kThreads / kTeam][columns]
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
  for (int column = static_cast<int>(threadIdx.x); column < columns; column += kThreads) {
    float sum = 0;
#pragma unroll
    for (int t = 0; t < kThreads / kTeam; ++t) sum += all[t * columns + column];
    sums[column] = sum;
  }
}

/// Each team walks down rows and sums its columns. Packed numbers stay packed until they are used, which keeps them to
/// 128 registers.
template <int kTeam, int kVectors, bool kCentred>
__global__ __launch_bounds__(kThreads, kBlocksEach) void backward_kernel(NormShape shape, NormTensors tensors) {
  constexpr int kSums = kCentred ? 2 : 1;
  constexpr int kTeams = kThreads / kTeam;
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

/// slices[blockIdx.y][column] = sum of gradient, or of gradient * normalised, over the rows of the slice.
template <bool kProduct>
__global__ __launch_bounds__(kThreads) void columns_kernel(NormShape shape, const __nv_bfloat16* gradient,
                                                           const __nv_bfloat16* normalised, float* slices) {
  __shared__ Pack held[kWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int column = (static_cast<int>(blockIdx.x) * kWarp + lane) * kPack;
  Pack sum{};
  if (column < shape.columns) {
#pragma unroll 4
    for (std::size_t row = std::size_t{blockIdx.y} * kWarps + warp; row < shape.rows;
         row += std::size_t{gridDim.y} * kWarps) {
      const std::size_t place = row * static_cast<std::size_t>(shape.columns) + column;
      Pack term = load(gradient + place);
      if constexpr (kProduct) term = each([](float g, float x) { return g * x; }, term, load(normalised + place));
      sum = Add{}(0, sum, term);
    }
  }
  held[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= shape.columns) return;
  for (int w = 1; w < kWarps; ++w) sum = Add{}(0, sum, held[w][lane]);
#pragma unroll
  for (int k = 0; k < kPack; ++k) slices[std::size_t{blockIdx.y} * shape.columns + column + k] = sum.at[k];
}

/// means[0][row] of the gradient (RMSNorm: zeros), means[1][row] of gradient * normalised.
template <bool kCentred>
__global__ __launch_bounds__(kThreads) void rows_kernel(NormShape shape, const __nv_bfloat16* gradient,
                                                        const __nv_bfloat16* normalised, float* means) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= shape.rows) return;
  const std::size_t start = row * static_cast<std::size_t>(shape.columns);
  float sum = 0;
  float product = 0;
#pragma unroll 4
  for (int column = column_of<kWarp>(0); column < shape.columns; column += kWarp * kPack) {
    const Pack g = load(gradient + start + column);
    const Pack x = load(normalised + start + column);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      sum += g.at[k];
      product += g.at[k] * x.at[k];
    }
  }
  sum = warp_sum(sum);
  product = warp_sum(product);
  if (threadIdx.x % kWarp != 0) return;
  means[row] = kCentred ? sum / static_cast<float>(shape.columns) : 0.0F;
  means[shape.rows + row] = product / static_cast<float>(shape.columns);
}

struct Normalise {
  std::size_t packs;  // in a row
  const float* mean;
  const float* rstd;
  __device__ Pack operator()(std::size_t index, const Pack& sum) const {
    const std::size_t row = index / packs;
    return each([m = mean[row], r = rstd[row]](float x) { return (x - m) * r; }, sum);
  }
};

/// means[row] of any numbers.
__global__ __launch_bounds__(kThreads) void row_means_kernel(NormShape shape, const __nv_bfloat16* numbers,
                                                             float* means) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= shape.rows) return;
  const __nv_bfloat16* const start = numbers + row * static_cast<std::size_t>(shape.columns);
  float sum = 0;
#pragma unroll 4
  for (int column = column_of<kWarp>(0); column < shape.columns; column += kWarp * kPack) {
    const Pack held = load(start + column);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum += held.at[k];
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) means[row] = sum / static_cast<float>(shape.columns);
}

__global__ __launch_bounds__(kThreads) void rstd_kernel(NormShape shape, const float* means, float* rstd) {
  const std::size_t row = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < shape.rows) rstd[row] = rsqrtf(means[row] + shape.epsilon);
}

struct Square {
  __device__ Pack operator()(std::size_t, const Pack& values) const {
    return each([](float x) { return x * x; }, values);
  }
};

struct TimesRow {
  std::size_t packs;  // in a row
  const float* of_rows;
  __device__ Pack operator()(std::size_t index, const Pack& values) const {
    return each([r = of_rows[index / packs]](float x) { return x * r; }, values);
  }
};

struct ScaleAndShift {
  std::size_t packs;  // in a row
  const __nv_bfloat16* weight;
  const __nv_bfloat16* bias;  // null: none
  __device__ Pack operator()(std::size_t index, const Pack& values) const {
    const std::size_t column = index % packs * kPack;
    const Pack shift = bias == nullptr ? Pack{} : load(bias + column);
    return each([](float x, float w, float b) { return x * w + b; }, values, load(weight + column), shift);
  }
};

struct ThroughNorm {
  std::size_t packs;  // in a row
  std::size_t rows;
  const float* means;
  const float* rstd;
  __device__ Pack operator()(std::size_t index, const Pack& gradient, const Pack& normalised) const {
    const std::size_t row = index / packs;
    return each(
        [m = means[row], p = means[rows + row], r = rstd[row]](float g, float x) { return r * (g - m - x * p); },
        gradient, normalised);
  }
};

__device__ double exact(const __nv_bfloat16* values, std::size_t i) {
  return values == nullptr ? 0 : static_cast<double>(__bfloat162float(values[i]));
}

/// The sum rounded to BF16, as all arms keep it.
__device__ double exact_sum(const NormTensors& tensors, std::size_t i) {
  if (tensors.input == nullptr) return exact(tensors.sum, i);
  const auto sum = static_cast<float>(exact(tensors.input, i) + exact(tensors.residual, i));
  return static_cast<double>(__bfloat162float(__float2bfloat16_rn(sum)));
}

/// A row of the sum in FP64.
struct ExactRow {
  const NormShape& shape;
  const NormTensors& tensors;
  std::size_t start;
  double mean = 0;
  double rstd = 0;
  __device__ ExactRow(const NormShape& of, const NormTensors& from, std::size_t row)
      : shape(of), tensors(from), start(row * static_cast<std::size_t>(of.columns)) {
    if (shape.norm == Norm::kLayer) {
      for (int i = 0; i < shape.columns; ++i) mean += sum(i) / shape.columns;
    }
    double variance = 0;
    for (int i = 0; i < shape.columns; ++i) variance += (sum(i) - mean) * (sum(i) - mean) / shape.columns;
    rstd = 1 / sqrt(variance + static_cast<double>(shape.epsilon));
  }
  __device__ double sum(int i) const { return exact_sum(tensors, start + i); }
  __device__ double normalised(int i) const { return (sum(i) - mean) * rstd; }
};

__global__ void forward_reference_kernel(NormShape shape, NormTensors tensors, float* sum, float* output) {
  const std::size_t row = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= shape.rows) return;
  const ExactRow values(shape, tensors, row);
  const __nv_bfloat16* bias = shape.norm == Norm::kLayer ? tensors.bias : nullptr;
  for (int i = 0; i < shape.columns; ++i) {
    sum[values.start + i] = static_cast<float>(values.sum(i));
    output[values.start + i] = static_cast<float>(values.normalised(i) * exact(tensors.weight, i) + exact(bias, i));
  }
}

__global__ void backward_reference_kernel(NormShape shape, NormTensors tensors, float* sum_gradient) {
  const std::size_t row = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= shape.rows) return;
  const ExactRow values(shape, tensors, row);
  const auto scaled = [&](int i) {
    return exact(tensors.output_gradient, values.start + i) * exact(tensors.weight, i);
  };
  double mean = 0;
  double product = 0;
  for (int i = 0; i < shape.columns; ++i) {
    if (shape.norm == Norm::kLayer) mean += scaled(i) / shape.columns;
    product += scaled(i) * values.normalised(i) / shape.columns;
  }
  for (int i = 0; i < shape.columns; ++i) {
    const double through = values.rstd * (scaled(i) - mean - values.normalised(i) * product);
    sum_gradient[values.start + i] = static_cast<float>(through + exact(tensors.skip_gradient, values.start + i));
  }
}

/// A thread a column; the means and deviations are those that the forward pass left.
__global__ void parameters_reference_kernel(NormShape shape, NormTensors tensors, float* parameter_gradient) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= shape.columns) return;
  double weight = 0;
  double bias = 0;
  for (std::size_t row = 0; row < shape.rows; ++row) {
    const std::size_t place = row * static_cast<std::size_t>(shape.columns) + column;
    const double gradient = exact(tensors.output_gradient, place);
    weight += gradient * (exact_sum(tensors, place) - static_cast<double>(tensors.mean[row])) *
              static_cast<double>(tensors.rstd[row]);
    bias += gradient;
  }
  parameter_gradient[column] = static_cast<float>(weight);
  if (shape.norm == Norm::kLayer) parameter_gradient[shape.columns + column] = static_cast<float>(bias);
}

void require(const NormShape& shape, const NormTensors& tensors) {
  if (shape.columns < kPack || shape.columns % kPack != 0 || shape.columns > kMostColumns) {
    throw std::invalid_argument("norm: the columns must be a multiple of 8 and at most 8192");
  }
  require_aligned({tensors.input, tensors.residual, tensors.sum, tensors.output, tensors.output_gradient,
                   tensors.skip_gradient, tensors.sum_gradient, tensors.weight, tensors.bias});
}

unsigned blocks_of(std::size_t items, int each_block) {
  return static_cast<unsigned>((items + each_block - 1) / each_block);
}

int rows_of_block(const NormShape& shape) { return shape.columns <= kWarpColumns ? kWarps : 1; }

unsigned backward_blocks(const NormShape& shape, int multiprocessors) {
  const unsigned most = static_cast<unsigned>(kBlocksEach * multiprocessors);
  return std::max(1U, std::min(blocks_of(shape.rows, rows_of_block(shape)), most));
}

/// Calls f with the number of threads that share a row, of packs that each holds of it, and whether means are
/// subtracted, as constants.
template <typename F>
void with_constants(const NormShape& shape, F f) {
  const auto with_vectors = [&]<int kTeam, bool kCentred>() {
    switch (blocks_of(shape.columns, kTeam * kPack)) {
      case 1:
        return f.template operator()<kTeam, 1, kCentred>();
      case 2:
        return f.template operator()<kTeam, 2, kCentred>();
      case 3:
        return f.template operator()<kTeam, 3, kCentred>();
      default:
        return f.template operator()<kTeam, kMostVectors, kCentred>();
    }
  };
  const auto with_team = [&]<bool kCentred>() {
    if (shape.columns <= kWarpColumns) return with_vectors.template operator()<kWarp, kCentred>();
    with_vectors.template operator()<kThreads, kCentred>();
  };
  shape.norm == Norm::kLayer ? with_team.template operator()<true>() : with_team.template operator()<false>();
}

void launch_forward(const NormShape& shape, const NormTensors& tensors, cudaStream_t stream) {
  if (shape.rows == 0) return;
  with_constants(shape, [&]<int kTeam, int kVectors, bool kCentred>() {
    forward_kernel<kTeam, kVectors, kCentred>
        <<<blocks_of(shape.rows, kThreads / kTeam), kThreads, 0, stream>>>(shape, tensors);
  });
  check(cudaGetLastError());
}

void launch_finish(const float* slices, unsigned slice_count, int columns, float* sums, cudaStream_t stream) {
  finish_kernel<<<blocks_of(columns, kWarp), dim3(kWarp, kWarp), 0, stream>>>(slices, static_cast<int>(slice_count),
                                                                              columns, sums);
  check(cudaGetLastError());
}

int sums_of(const NormShape& shape) { return shape.norm == Norm::kLayer ? 2 : 1; }

}  // namespace

std::size_t norm_partials(const NormShape& shape, int multiprocessors) {
  return std::size_t{backward_blocks(shape, multiprocessors)} * 2 * static_cast<std::size_t>(shape.columns);
}

void residual_add(const __nv_bfloat16* left, const __nv_bfloat16* right, __nv_bfloat16* sum, std::size_t count,
                  cudaStream_t stream) {
  map(count, sum, Add{}, stream, left, right);
}

void norm_forward(const NormShape& shape, const NormTensors& tensors, cudaStream_t stream) {
  require(shape, tensors);
  launch_forward(shape, tensors, stream);
}

void norm_backward(const NormShape& shape, const NormTensors& tensors, int multiprocessors, cudaStream_t stream) {
  require(shape, tensors);
  const unsigned blocks = backward_blocks(shape, multiprocessors);
  const auto shared_bytes = static_cast<std::size_t>(rows_of_block(shape) * shape.columns) * sizeof(float);
  with_constants(shape, [&]<int kTeam, int kVectors, bool kCentred>() {
    backward_kernel<kTeam, kVectors, kCentred><<<blocks, kThreads, shared_bytes, stream>>>(shape, tensors);
  });
  check(cudaGetLastError());
  launch_finish(tensors.partials, blocks, sums_of(shape) * shape.columns, tensors.parameter_gradient, stream);
}

void norm_forward_by_operations(const NormShape& shape, const NormTensors& tensors, const NormSteps& steps,
                                cudaStream_t stream) {
  require(shape, tensors);
  const std::size_t count = shape.rows * static_cast<std::size_t>(shape.columns);
  const auto packs = static_cast<std::size_t>(shape.columns / kPack);
  if (tensors.input != nullptr) residual_add(tensors.input, tensors.residual, tensors.sum, count, stream);
  NormTensors statistics = tensors;
  statistics.input = nullptr;
  statistics.output = nullptr;
  launch_forward(shape, statistics, stream);
  map(count, steps.normalised, Normalise{packs, tensors.mean, tensors.rstd}, stream,
      static_cast<const __nv_bfloat16*>(tensors.sum));
  if (tensors.output == nullptr) return;
  const __nv_bfloat16* bias = shape.norm == Norm::kLayer ? tensors.bias : nullptr;
  map(count, tensors.output, ScaleAndShift{packs, tensors.weight, bias}, stream,
      static_cast<const __nv_bfloat16*>(steps.normalised));
}

void rms_forward_by_operations(const NormShape& shape, const NormTensors& tensors, const NormSteps& steps,
                               cudaStream_t stream) {
  require(shape, tensors);
  if (shape.rows == 0) return;
  const std::size_t count = shape.rows * static_cast<std::size_t>(shape.columns);
  const auto packs = static_cast<std::size_t>(shape.columns / kPack);
  const __nv_bfloat16* const sum = tensors.sum;
  map(count, steps.normalised, Square{}, stream, sum);
  row_means_kernel<<<blocks_of(shape.rows, kWarps), kThreads, 0, stream>>>(shape, steps.normalised, steps.row_means);
  check(cudaGetLastError());
  rstd_kernel<<<blocks_of(shape.rows, kThreads), kThreads, 0, stream>>>(shape, steps.row_means, tensors.rstd);
  check(cudaGetLastError());
  map(count, steps.normalised, TimesRow{packs, tensors.rstd}, stream, sum);
  map(count, tensors.output, ScaleAndShift{packs, tensors.weight, nullptr}, stream,
      static_cast<const __nv_bfloat16*>(steps.normalised));
}

void norm_backward_by_operations(const NormShape& shape, const NormTensors& tensors, const NormSteps& steps,
                                 int multiprocessors, cudaStream_t stream) {
  require(shape, tensors);
  const std::size_t count = shape.rows * static_cast<std::size_t>(shape.columns);
  const auto packs = static_cast<std::size_t>(shape.columns / kPack);
  const __nv_bfloat16* const scaled = steps.scaled_gradient;
  const __nv_bfloat16* const normalised = steps.normalised;
  map(count, steps.scaled_gradient, ScaleAndShift{packs, tensors.weight, nullptr}, stream, tensors.output_gradient);

  const unsigned slices = backward_blocks(shape, multiprocessors);
  const dim3 grid(blocks_of(shape.columns, kWarp * kPack), slices);
  columns_kernel<true><<<grid, kThreads, 0, stream>>>(shape, tensors.output_gradient, normalised, tensors.partials);
  check(cudaGetLastError());
  launch_finish(tensors.partials, slices, shape.columns, tensors.parameter_gradient, stream);
  if (shape.norm == Norm::kLayer) {
    columns_kernel<false><<<grid, kThreads, 0, stream>>>(shape, tensors.output_gradient, nullptr, tensors.partials);
    check(cudaGetLastError());
    launch_finish(tensors.partials, slices, shape.columns, tensors.parameter_gradient + shape.columns, stream);
  }
  if (shape.rows == 0) return;

  const auto means = shape.norm == Norm::kLayer ? rows_kernel<true> : rows_kernel<false>;
  means<<<blocks_of(shape.rows, kWarps), kThreads, 0, stream>>>(shape, scaled, normalised, steps.row_means);
  check(cudaGetLastError());
  map(count, steps.norm_gradient, ThroughNorm{packs, shape.rows, steps.row_means, tensors.rstd}, stream, scaled,
      normalised);
  residual_add(steps.norm_gradient, tensors.skip_gradient, tensors.sum_gradient, count, stream);
}

void norm_forward_reference(const NormShape& shape, const NormTensors& tensors, float* sum, float* output,
                            cudaStream_t stream) {
  if (shape.rows == 0) return;
  forward_reference_kernel<<<blocks_of(shape.rows, kWarp), kWarp, 0, stream>>>(shape, tensors, sum, output);
  check(cudaGetLastError());
}

void norm_backward_reference(const NormShape& shape, const NormTensors& tensors, float* sum_gradient,
                             float* parameter_gradient, cudaStream_t stream) {
  if (shape.rows > 0) {
    backward_reference_kernel<<<blocks_of(shape.rows, kWarp), kWarp, 0, stream>>>(shape, tensors, sum_gradient);
    check(cudaGetLastError());
  }
  parameters_reference_kernel<<<blocks_of(shape.columns, kWarp), kWarp, 0, stream>>>(shape, tensors,
                                                                                     parameter_gradient);
  check(cudaGetLastError());
}

}  // namespace gpulift
