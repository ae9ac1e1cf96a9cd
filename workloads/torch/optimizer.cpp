#include "optimizer.hpp"

#include <torch/utils.h>

#include <cmath>
#include <stdexcept>

namespace gpulift {
namespace {

using Tensors = std::vector<torch::Tensor>;

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const torch::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

Tensors zeros_like(const Tensors& parameters) {
  Tensors zeros;
  for (const torch::Tensor& parameter : parameters) zeros.push_back(torch::zeros_like(parameter));
  return zeros;
}

/// Waits for the device: what the fused form is for.
bool skips(const std::optional<torch::Tensor>& found_inf) { return found_inf && found_inf->item<float>() != 0; }

// I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", arXiv:1711.05101, in the order in which torch
// computes it.
class AdamW : public Optimizer {
 public:
  AdamW(const OptimizerRule& rule, Tensors parameters)
      : rule_(rule),
        parameters_(std::move(parameters)),
        first_moments_(zeros_like(parameters_)),
        second_moments_(zeros_like(parameters_)) {}

  void step(const std::optional<torch::Tensor>& found_inf) override {
    const torch::NoGradGuard no_grad;
    if (skips(found_inf)) return;
    ++steps_;
    const double size = rule_.learning_rate / (1 - std::pow(rule_.beta1, steps_));
    const double second_correction = std::sqrt(1 - std::pow(rule_.beta2, steps_));
    update(size, second_correction);
  }

 protected:
  virtual void update(double size, double second_correction) = 0;

  OptimizerRule rule_;
  Tensors parameters_;
  Tensors first_moments_;
  Tensors second_moments_;

 private:
  double steps_ = 0;
};

class AdamWLoop : public AdamW {
  using AdamW::AdamW;
  void update(double size, double second_correction) override {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor& gradient = parameters_[i].grad();
      parameters_[i].mul_(1 - rule_.learning_rate * rule_.weight_decay);
      first_moments_[i].lerp_(gradient, 1 - rule_.beta1);
      second_moments_[i].mul_(rule_.beta2).addcmul_(gradient, gradient, 1 - rule_.beta2);
      const torch::Tensor denominator = second_moments_[i].sqrt().div_(second_correction).add_(rule_.epsilon);
      parameters_[i].addcdiv_(first_moments_[i], denominator, -size);
    }
  }
};

class AdamWForeach : public AdamW {
  using AdamW::AdamW;
  void update(double size, double second_correction) override {
    const Tensors gradients = gradients_of(parameters_);
    at::_foreach_mul_(parameters_, 1 - rule_.learning_rate * rule_.weight_decay);
    at::_foreach_lerp_(first_moments_, gradients, 1 - rule_.beta1);
    at::_foreach_mul_(second_moments_, rule_.beta2);
    at::_foreach_addcmul_(second_moments_, gradients, gradients, 1 - rule_.beta2);
    Tensors denominators = at::_foreach_sqrt(second_moments_);
    at::_foreach_div_(denominators, second_correction);
    at::_foreach_add_(denominators, rule_.epsilon);
    at::_foreach_addcdiv_(parameters_, first_moments_, denominators, -size);
  }
};

class AdamWFused : public Optimizer {
 public:
  AdamWFused(const OptimizerRule& rule, Tensors parameters)
      : rule_(rule),
        parameters_(std::move(parameters)),
        first_moments_(zeros_like(parameters_)),
        second_moments_(zeros_like(parameters_)) {
    // A count per parameter, on its device: the kernel reads it, so that a graph's replay counts on.
    for (const torch::Tensor& parameter : parameters_) {
      counts_.push_back(torch::zeros({}, torch::TensorOptions(parameter.device()).dtype(torch::kFloat32)));
    }
  }

  void step(const std::optional<torch::Tensor>& found_inf) override {
    const torch::NoGradGuard no_grad;
    at::_foreach_add_(counts_, 1);
    at::_fused_adamw_(parameters_, gradients_of(parameters_), first_moments_, second_moments_, {}, counts_,
                      rule_.learning_rate, rule_.beta1, rule_.beta2, rule_.weight_decay, rule_.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt, found_inf);
    if (found_inf) at::_foreach_sub_(counts_, Tensors(counts_.size(), *found_inf));  // a skipped step does not count
  }

 private:
  OptimizerRule rule_;
  Tensors parameters_;
  Tensors first_moments_;
  Tensors second_moments_;
  Tensors counts_;
};

/// SGD with momentum and weight decay as torch computes it: v = m v + (g + d p), p -= r v.
class SgdLoop : public Optimizer {
 public:
  SgdLoop(const OptimizerRule& rule, Tensors parameters)
      : rule_(rule), parameters_(std::move(parameters)), momenta_(zeros_like(parameters_)) {}

  void step(const std::optional<torch::Tensor>& found_inf) override {
    const torch::NoGradGuard no_grad;
    if (skips(found_inf)) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor gradient = parameters_[i].grad().add(parameters_[i], rule_.weight_decay);
      momenta_[i].mul_(rule_.beta1).add_(gradient);
      parameters_[i].add_(momenta_[i], -rule_.learning_rate);
    }
  }

 private:
  OptimizerRule rule_;
  Tensors parameters_;
  Tensors momenta_;
};

class SgdForeach : public Optimizer {
 public:
  SgdForeach(const OptimizerRule& rule, Tensors parameters)
      : rule_(rule), parameters_(std::move(parameters)), momenta_(zeros_like(parameters_)) {}

  void step(const std::optional<torch::Tensor>& found_inf) override {
    const torch::NoGradGuard no_grad;
    if (skips(found_inf)) return;
    const Tensors decayed = at::_foreach_add(gradients_of(parameters_), parameters_, rule_.weight_decay);
    at::_foreach_mul_(momenta_, rule_.beta1);
    at::_foreach_add_(momenta_, decayed);
    at::_foreach_add_(parameters_, momenta_, -rule_.learning_rate);
  }

 private:
  OptimizerRule rule_;
  Tensors parameters_;
  Tensors momenta_;
};

class SgdFused : public Optimizer {
 public:
  SgdFused(const OptimizerRule& rule, Tensors parameters) : rule_(rule), parameters_(std::move(parameters)) {
    if (rule_.beta1 != 0) momenta_ = zeros_like(parameters_);  // torch wants none where there is no momentum
  }

  void step(const std::optional<torch::Tensor>& found_inf) override {
    const torch::NoGradGuard no_grad;
    // Momenta that begin at 0 need no first step of their own where the dampening is 0.
    at::_fused_sgd_(parameters_, gradients_of(parameters_), momenta_, rule_.weight_decay, rule_.beta1,
                    rule_.learning_rate, /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false,
                    /*is_first_step=*/false, /*grad_scale=*/std::nullopt, found_inf);
  }

 private:
  OptimizerRule rule_;
  Tensors parameters_;
  Tensors momenta_;
};

template <typename Loop, typename Foreach, typename Fused>
std::unique_ptr<Optimizer> make_form(const OptimizerRule& rule, OptimizerForm form, Tensors parameters) {
  switch (form) {
    case OptimizerForm::kLoop:
      return std::make_unique<Loop>(rule, std::move(parameters));
    case OptimizerForm::kForeach:
      return std::make_unique<Foreach>(rule, std::move(parameters));
    case OptimizerForm::kFused:
      return std::make_unique<Fused>(rule, std::move(parameters));
  }
  throw std::invalid_argument("no such form of an optimizer");
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerRule& rule, OptimizerForm form,
                                          std::vector<torch::Tensor> parameters) {
  if (rule.kind == OptimizerRule::Kind::kSgd)
    return make_form<SgdLoop, SgdForeach, SgdFused>(rule, form, std::move(parameters));
  return make_form<AdamWLoop, AdamWForeach, AdamWFused>(rule, form, std::move(parameters));
}

}  // namespace gpulift
