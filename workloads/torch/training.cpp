#include "training.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace gpulift {
namespace {

std::vector<torch::Tensor> gradients_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

void lay_out_channels_last(Model& model) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : model.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

}  // namespace

TrainingRun::TrainingRun(const Workload& workload, const TrainingOptions& options, torch::Device device,
                         std::uint64_t seed)
    : options_(options), device_(device) {
  torch::manual_seed(seed);
  // Before the weights, which the generator of their device draws: the data are then the same on every device.
  if (workload.make_batches) {
    for (const Batch& batch : workload.make_batches()) batches_.push_back(placed(batch));
  } else {
    batches_.push_back(placed(workload.make_batch()));
  }
  model_ = workload.make_model(device);
  if (batch().input.size(0) % options_.micro_batches != 0) {
    throw std::invalid_argument("a batch of " + std::to_string(batch().input.size(0)) + " does not split into " +
                                std::to_string(options_.micro_batches) + " micro-batches");
  }
  model_->to(device);
  if (options_.precision == Precision::kPureBf16) model_->to(torch::kBFloat16);
  if (options_.channels_last) lay_out_channels_last(*model_);
  if (options_.prepare) options_.prepare(*model_);
  parameters_ = model_->parameters();
  if (options_.keep_gradients) {
    for (torch::Tensor& parameter : parameters_) parameter.mutable_grad() = torch::zeros_like(parameter);
  }
  if (options_.precision == Precision::kPureBf16) {
    for (const torch::Tensor& parameter : parameters_) {
      masters_.push_back(parameter.detach().to(torch::kFloat32).requires_grad_());
    }
  }
  optimizer_ = make_optimizer(workload.rule, options_.optimizer, masters_.empty() ? parameters_ : masters_);
  if (options_.precision == Precision::kFp16) scaler_.emplace(device);
}

void TrainingRun::step() {
  forward_backward();
  update();
}

void TrainingRun::forward_backward() {
  use_switches_of(options_.precision);
  if (options_.before_step) options_.before_step();
  if (options_.keep_gradients) {
    at::_foreach_zero_(gradients_of(parameters_));
  } else {
    for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }
  loss_ = torch::Tensor();
  const Batch& batch = batches_[next_batch_];
  const std::int64_t rows = batch.input.size(0) / options_.micro_batches;
  for (std::int64_t i = 0; i < options_.micro_batches; ++i) {
    run_micro_batch(options_.micro_batches == 1 ? batch : rows_of(batch, i * rows, rows));
  }
  next_batch_ = (next_batch_ + 1) % batches_.size();
}

void TrainingRun::use_batch(const Batch& batch) {
  batches_ = {placed(batch)};
  next_batch_ = 0;
}

Batch TrainingRun::placed(const Batch& batch) const {
  Batch on_device = to_device(batch, device_);
  torch::Tensor& input = on_device.input;
  if (options_.precision == Precision::kPureBf16 && input.is_floating_point()) input = input.to(torch::kBFloat16);
  if (options_.channels_last && input.dim() == 4) input = input.contiguous(torch::MemoryFormat::ChannelsLast);
  return on_device;
}

void TrainingRun::run_micro_batch(const Batch& batch) {
  torch::Tensor loss;
  {
    const Autocast autocast(options_.precision, device_);
    loss = model_->loss(batch);
    if (options_.micro_batches > 1) loss = loss / options_.micro_batches;
  }
  (scaler_ ? scaler_->scale(loss) : loss).backward();
  loss_ = loss_.defined() ? loss_ + loss.detach() : loss.detach();
}

void TrainingRun::update() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < masters_.size(); ++i)
    masters_[i].mutable_grad() = parameters_[i].grad().to(torch::kFloat32);
  if (scaler_) {
    scaler_->unscale(gradients_of(parameters_));
    optimizer_->step(scaler_->found_inf());
    scaler_->update();
  } else {
    optimizer_->step();
  }
  if (!masters_.empty()) at::_foreach_copy_(parameters_, masters_);
}

std::vector<double> losses_of(TrainingRun& run, int steps) {
  std::vector<torch::Tensor> losses;
  for (int i = 0; i < steps; ++i) {
    run.step();
    losses.push_back(run.loss());
  }
  std::vector<double> values;
  for (const torch::Tensor& loss : losses) values.push_back(loss.item<double>());
  return values;
}

double largest_deviation(const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) throw std::invalid_argument("losses of a different number of steps");
  double largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double deviation = std::abs(found[i] - expected[i]) / std::abs(expected[0]);
    if (!std::isfinite(deviation)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, deviation);
  }
  return largest;
}

}  // namespace gpulift
