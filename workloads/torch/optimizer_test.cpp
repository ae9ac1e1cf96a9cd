#include "optimizer.hpp"

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace gpulift {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kSteps = 5;

OptimizerRule rule_of(OptimizerRule::Kind kind) {
  return {.kind = kind, .learning_rate = 0.01, .weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6};
}

/// Parameters of some shapes; the same for the same seed.
Tensors make_parameters(torch::Device device) {
  torch::manual_seed(1);
  Tensors parameters;
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{33, 17}, {5}, {2, 3, 4, 5}}) {
    parameters.push_back(torch::randn(shape).to(device).requires_grad_());
  }
  return parameters;
}

/// Fresh gradients, which depend on the step alone.
void set_gradients(Tensors& parameters, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  for (torch::Tensor& parameter : parameters) {
    parameter.mutable_grad() = torch::randn(parameter.sizes()).to(parameter.device());
  }
}

Tensors values_of(const Tensors& parameters) {
  Tensors values;
  for (const torch::Tensor& parameter : parameters) values.push_back(parameter.detach().clone());
  return values;
}

double largest_difference(const Tensors& found, const Tensors& expected) {
  double largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, (found[i] - expected[i]).abs().max().item<double>());
  }
  return largest;
}

/// Where torch's own optimizer brings the parameters.
Tensors expected_values(OptimizerRule::Kind kind, torch::Device device) {
  Tensors parameters = make_parameters(device);
  const OptimizerRule rule = rule_of(kind);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (kind == OptimizerRule::Kind::kAdamW) {
    optimizer = std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(rule.learning_rate)
                                                                      .betas(std::tuple(rule.beta1, rule.beta2))
                                                                      .eps(rule.epsilon)
                                                                      .weight_decay(rule.weight_decay));
  } else {
    optimizer = std::make_unique<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(rule.learning_rate).momentum(rule.beta1).weight_decay(rule.weight_decay));
  }
  for (int step = 0; step < kSteps; ++step) {
    set_gradients(parameters, step);
    optimizer->step();
  }
  return values_of(parameters);
}

class EveryOptimizer : public testing::TestWithParam<std::tuple<OptimizerRule::Kind, OptimizerForm, const char*>> {
 protected:
  void SetUp() override {
    const std::string device = std::get<2>(GetParam());
    if (device == "cuda" && !torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
    device_ = torch::Device(device);
    parameters_ = make_parameters(device_);
    optimizer_ = make_optimizer(rule_of(kind()), std::get<1>(GetParam()), parameters_);
  }

  static OptimizerRule::Kind kind() { return std::get<0>(GetParam()); }
  torch::Tensor found_inf(float value) const { return torch::full({}, value, torch::TensorOptions(device_)); }

  void step(int step, const std::optional<torch::Tensor>& found_inf = std::nullopt) {
    set_gradients(parameters_, step);
    optimizer_->step(found_inf);
  }

  torch::Device device_ = torch::kCPU;
  Tensors parameters_;
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_P(EveryOptimizer, BringsParametersWhereTorchDoes) {
  for (int i = 0; i < kSteps; ++i) step(i);
  EXPECT_LE(largest_difference(values_of(parameters_), expected_values(kind(), device_)), 1e-6);
  EXPECT_GE(largest_difference(values_of(parameters_), make_parameters(device_)), 0.03) << "nothing moved";
}

TEST_P(EveryOptimizer, TakesAFlagThatSaysThatAllIsFinite) {
  for (int i = 0; i < kSteps; ++i) step(i, found_inf(0));
  EXPECT_LE(largest_difference(values_of(parameters_), expected_values(kind(), device_)), 1e-6);
}

// Moments and the count of steps are not to be seen; the steps after a skipped one depend on them.
TEST_P(EveryOptimizer, LeavesParametersMomentsAndCountWhereAGradientIsNotFinite) {
  for (int i = 0; i < 2; ++i) step(i, found_inf(0));
  const Tensors before = values_of(parameters_);
  set_gradients(parameters_, 99);
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().fill_(std::numeric_limits<float>::infinity());
  optimizer_->step(found_inf(1));
  EXPECT_EQ(largest_difference(values_of(parameters_), before), 0);
  for (int i = 2; i < kSteps; ++i) step(i, found_inf(0));
  EXPECT_LE(largest_difference(values_of(parameters_), expected_values(kind(), device_)), 1e-6);
}

// torch's fused kernel has another way then.
TEST(SgdWithoutMomentum, IsTheSameInEveryForm) {
  OptimizerRule rule = rule_of(OptimizerRule::Kind::kSgd);
  rule.beta1 = 0;
  std::vector<Tensors> found;
  for (const OptimizerForm form : {OptimizerForm::kLoop, OptimizerForm::kForeach, OptimizerForm::kFused}) {
    Tensors parameters = make_parameters(torch::kCPU);
    const auto optimizer = make_optimizer(rule, form, parameters);
    for (int step = 0; step < kSteps; ++step) {
      set_gradients(parameters, step);
      optimizer->step();
    }
    found.push_back(values_of(parameters));
  }
  EXPECT_LE(largest_difference(found[1], found[0]), 1e-6);
  EXPECT_LE(largest_difference(found[2], found[0]), 1e-6);
}

std::string name_of(const testing::TestParamInfo<EveryOptimizer::ParamType>& info) {
  const auto& [kind, form, device] = info.param;
  const std::string rule = kind == OptimizerRule::Kind::kAdamW ? "AdamW" : "Sgd";
  const std::string forms[] = {"Loop", "Foreach", "Fused"};
  return rule + forms[static_cast<int>(form)] + "On" + device;
}

INSTANTIATE_TEST_SUITE_P(Forms, EveryOptimizer,
                         testing::Combine(testing::Values(OptimizerRule::Kind::kAdamW, OptimizerRule::Kind::kSgd),
                                          testing::Values(OptimizerForm::kLoop, OptimizerForm::kForeach,
                                                          OptimizerForm::kFused),
                                          testing::Values("cpu", "cuda")),
                         name_of);

}  // namespace
}  // namespace gpulift
