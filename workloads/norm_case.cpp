#include "workloads/norm_case.hpp"

#include <cmath>

#include "core/cuda/check.hpp"
#include "kernels/fill.hpp"
#include "workloads/memory_roof.hpp"
#include "workloads/replayed.hpp"

namespace gpulift {

NormCase::NormCase(Device& device, const NormShape& shape, Pass pass, bool residual, std::uint64_t seed)
    : device_(&device),
      shape_(shape),
      pass_(pass),
      residual_(residual),
      count_(shape.rows * static_cast<std::size_t>(shape.columns)),
      parameters_(static_cast<std::size_t>(shape.columns) * (shape.norm == Norm::kLayer ? 2 : 1)),
      left_(device, residual || !forward() ? count_ : 0),
      right_(device, residual ? count_ : 0),
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
  if (!forward()) all.output_gradient = left_.data();
  if (!residual_) return all;
  if (forward()) all.input = left_.data();
  (forward() ? all.residual : all.skip_gradient) = right_.data();
  return all;
}

double NormCase::bytes() const {
  const int matrices = forward() ? (residual_ ? 4 : 2) : (residual_ ? 4 : 3);
  return matrices * sizeof(__nv_bfloat16) * static_cast<double>(count_);
}

void NormCase::run(StreamHandle stream) const {
  if (forward()) {
    norm_forward(shape_, tensors(), stream);
  } else {
    norm_backward(shape_, tensors(), device_->multiprocessors(), stream);
  }
}

void NormCase::poison(StreamHandle stream) const {
  gpulift::check(cudaMemsetAsync(result_.data(), 0xFF, result_.bytes(), stream));
  gpulift::check(cudaMemsetAsync(parameter_gradient_.data(), 0xFF, parameter_gradient_.bytes(), stream));
  if (forward() && residual_) gpulift::check(cudaMemsetAsync(sum_.data(), 0xFF, sum_.bytes(), stream));
}

double NormCase::error(StreamHandle stream) const {
  const double of_result = verifier_.max_relative_error(result_.data(), reference_.data(), count_, 1, stream);
  if (!forward()) {
    return of_result + verifier_.max_relative_error(parameter_gradient_.data(), parameter_reference_.data(),
                                                    parameters_, std::sqrt(static_cast<double>(shape_.rows)), stream);
  }
  if (!residual_) return of_result;
  return of_result + verifier_.max_relative_error(sum_.data(), sum_reference_.data(), count_, 1, stream);
}

void compare_norms(Trial& trial, const std::vector<std::string>& arms, const NormShape& shape, bool residual) {
  const auto pass = trial.word("pass") == "forward" ? NormCase::Pass::kForward : NormCase::Pass::kBackward;
  const NormCase rows(trial.device(), shape, pass, residual, trial.seed());
  trial.cost({.bytes = rows.bytes(), .roof = memory_roof(trial.device().l2_bytes(), rows.bytes())});
  trial.check({.meaning = "error against FP64, relative or of numbers below 1 absolute",
               .poison = [&](StreamHandle stream) { rows.poison(stream); },
               .error = [&](StreamHandle stream) { return rows.error(stream); },
               .tolerance = 1.0 / 128});  // rounding once to BF16 is at most 1/256 of a number
  const auto run = [&] { return replayed([&](StreamHandle stream) { rows.run(stream); }); };
  std::vector<Arm> compared;
  for (const std::string& name : arms) {
    compared.push_back(name == "fused" ? Arm{.name = name, .make = run, .clock = Clock::kUnheld} : python_arm(name));
  }
  trial.compare(std::move(compared));
}

}  // namespace gpulift
