// In FP64, a thread a row or a column.
#include "kernels/layer_norm.hpp"
#include "kernels/layer_norm_rows.cuh"

namespace gpulift {
namespace {

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

}  // namespace

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
