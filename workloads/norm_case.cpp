#include "workloads/norm_case.hpp"

#include <cmath>

#include "core/cuda/check.hpp"
#include "kernels/fill.hpp"

namespace gpulift {

NormCase::NormCase(Device& device, const NormShape& shape, Pass pass, std::uint64_t seed)
    : device_(&device),
      shape_(shape),
      pass_(pass),
      count_(shape.rows * static_cast<std::size_t>(shape.columns)),
      parameters_(static_cast<std::size_t>(shape.columns) * (shape.norm == Norm::kLayer ? 2 : 1)),
      left_(device, pass == Pass::kForwardOfSum ? 0 : count_),
      right_(device, left_.size()),
      sum_(device, count_),
      result_(device, count_),
      scale_(device, 2 * static_cast<std::size_t>(shape.columns)),
      statistics_(device, 2 * shape.rows),
      partials_(device, norm_partials(shape, device.multiprocessors())),
      parameter_gradient_(device, parameters_),
      parameter_reference_(device, parameters_),
      reference_(device, count_),
      sum_reference_(device, count_),
      verifier_(device) {
  fill_normal(left_.data(), left_.size(), seed, nullptr);
  fill_normal(right_.data(), right_.size(), seed + 1, nullptr);
  fill_normal(sum_.data(), count_, seed + 2, nullptr);
  fill_normal(scale_.data(), scale_.size(), seed + 3, nullptr, 0.5F);
  if (forward()) {
    norm_forward_reference(shape_, tensors(), sum_reference_.data(), reference_.data(), nullptr);
  } else {
    NormTensors statistics = tensors();
    statistics.output = nullptr;
    norm_forward(shape_, statistics, nullptr);
    norm_backward_reference(shape_, tensors(), reference_.data(), parameter_reference_.data(), nullptr);
  }
  gpulift::check(cudaDeviceSynchronize());
}

NormTensors NormCase::tensors() const {
  NormTensors all{.sum = sum_.data(),
                  .weight = scale_.data(),
                  .bias = scale_.data() + shape_.columns,
                  .mean = statistics_.data(),
                  .rstd = statistics_.data() + shape_.rows,
                  .parameter_gradient = parameter_gradient_.data(),
                  .partials = partials_.data()};
  (forward() ? all.output : all.sum_gradient) = result_.data();
  if (pass_ == Pass::kForwardOfSum) return all;
  (forward() ? all.input : all.output_gradient) = left_.data();
  (forward() ? all.residual : all.skip_gradient) = right_.data();
  return all;
}

void NormCase::normalise(__nv_bfloat16* normalised) const {
  NormTensors rows = tensors();
  rows.output = nullptr;
  norm_forward_by_operations(shape_, rows, {.normalised = normalised}, nullptr);
  gpulift::check(cudaDeviceSynchronize());
}

void NormCase::poison(StreamHandle stream) const {
  gpulift::check(cudaMemsetAsync(result_.data(), 0xFF, result_.bytes(), stream));
  gpulift::check(cudaMemsetAsync(parameter_gradient_.data(), 0xFF, parameter_gradient_.bytes(), stream));
  if (adds()) gpulift::check(cudaMemsetAsync(sum_.data(), 0xFF, sum_.bytes(), stream));
}

double NormCase::error(StreamHandle stream) const {
  const double of_result = verifier_.max_relative_error(result_.data(), reference_.data(), count_, 1, stream);
  if (pass_ == Pass::kForwardOfSum) return of_result;
  if (adds()) return of_result + verifier_.max_relative_error(sum_.data(), sum_reference_.data(), count_, 1, stream);
  return of_result + verifier_.max_relative_error(parameter_gradient_.data(), parameter_reference_.data(), parameters_,
                                                  std::sqrt(static_cast<double>(shape_.rows)), stream);
}

}  // namespace gpulift
