#include "mobilenet.hpp"

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <vector>

#include "convolution.hpp"
#include "images.hpp"

namespace gpulift {
namespace {

constexpr std::int64_t kClasses = 1000;
constexpr Convolution kFirstLayer{.in = 3, .out = 32, .kernel = 3, .stride = 2};
constexpr Convolution kHead{.in = 320, .out = 1280};

/// Expansion (none where the factor is 1), depthwise, projection.
std::vector<Convolution> plan_residual(std::int64_t in, std::int64_t out, std::int64_t factor, std::int64_t stride) {
  const std::int64_t hidden = factor * in;
  std::vector<Convolution> plan;
  if (factor != 1) plan.push_back({.in = in, .out = hidden});
  plan.push_back({.in = hidden, .out = hidden, .kernel = 3, .stride = stride, .groups = hidden});
  plan.push_back({.in = hidden, .out = out});
  return plan;
}

/// The inverted residuals in order: table 2 of the paper.
std::vector<std::vector<Convolution>> plan_residuals() {
  struct Stage {
    std::int64_t factor;
    std::int64_t out;
    std::int64_t repeats;
    std::int64_t stride;
  };
  constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                               {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  std::vector<std::vector<Convolution>> plans;
  std::int64_t in = kFirstLayer.out;
  for (const Stage& stage : kStages) {
    for (std::int64_t i = 0; i < stage.repeats; ++i) {
      plans.push_back(plan_residual(in, stage.out, stage.factor, i == 0 ? stage.stride : 1));
      in = stage.out;
    }
  }
  return plans;
}

/// A sequence that can be part of another: torch's own cannot.
class Chain : public torch::nn::SequentialImpl {
 public:
  using SequentialImpl::SequentialImpl;
  torch::Tensor forward(const torch::Tensor& input) { return SequentialImpl::forward(input); }
};

std::shared_ptr<Chain> activated(const Convolution& convolution) {
  return std::make_shared<Chain>(convolution.layer(), torch::nn::BatchNorm2d(convolution.out),
                                 torch::nn::ReLU6(torch::nn::ReLU6Options(/*inplace=*/true)));
}

class InvertedResidual : public torch::nn::Module {
 public:
  explicit InvertedResidual(const std::vector<Convolution>& plan) : adds_(plan.front().in == plan.back().out) {
    for (const Convolution& convolution : plan) adds_ = adds_ && convolution.stride == 1;
    for (std::size_t i = 0; i + 1 < plan.size(); ++i) conv_->push_back(activated(plan[i]));
    conv_->push_back(plan.back().layer());
    conv_->push_back(torch::nn::BatchNorm2d(plan.back().out));
    register_module("conv", conv_);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor output = conv_->forward(input);
    return adds_ ? input + output : output;
  }

 private:
  bool adds_;  // where input and output have the same shape
  torch::nn::Sequential conv_;
};

}  // namespace

Mobilenet::Mobilenet() {
  features_->push_back(activated(kFirstLayer));
  for (const auto& plan : plan_residuals()) features_->push_back(std::make_shared<InvertedResidual>(plan));
  features_->push_back(activated(kHead));
  register_module("features", features_);
  const torch::nn::Linear linear(kHead.out, kClasses);
  torch::nn::init::normal_(linear->weight, 0, 0.01);
  torch::nn::init::zeros_(linear->bias);
  classifier_->push_back(torch::nn::Identity());  // in the place of the dropout, so that names agree
  classifier_->push_back(linear);
  register_module("classifier", classifier_);
}

torch::Tensor Mobilenet::forward(const Batch& batch) {
  const torch::Tensor image = features_->forward(batch.input);
  return classifier_[1]->as<torch::nn::Linear>()->forward(torch::adaptive_avg_pool2d(image, {1, 1}).flatten(1));
}

torch::Tensor Mobilenet::loss(const Batch& batch) {
  return cross_entropy(forward(batch).to(torch::kFloat32), batch.target);
}

double mobilenet_products(std::int64_t pixels) {
  double sum = kFirstLayer.products(pixels);
  std::int64_t width = kFirstLayer.width(pixels);
  for (const auto& plan : plan_residuals()) {
    for (const Convolution& convolution : plan) {
      sum += convolution.products(width);
      width = convolution.width(width);
    }
  }
  return sum + kHead.products(width) + static_cast<double>(kHead.out * kClasses);
}

namespace {

Workload workload_at(std::int64_t pixels, std::int64_t batch_size) {
  Workload workload;
  workload.make_model = [](torch::Device /*device*/) { return std::make_shared<Mobilenet>(); };
  workload.make_batch = [pixels, batch_size] { return synthetic_images(batch_size, pixels, kClasses); };
  workload.flops = training_flops(mobilenet_products(pixels), kFirstLayer.products(pixels), batch_size);
  workload.items = static_cast<double>(batch_size);
  workload.item = "image";
  workload.rule = image_rule();
  return workload;
}

}  // namespace

Workload mobilenet_workload(std::int64_t batch_size) { return workload_at(224, batch_size); }
Workload mobilenet_small_workload(std::int64_t batch_size) { return workload_at(96, batch_size); }

}  // namespace gpulift
