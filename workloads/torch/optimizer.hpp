#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

namespace gpulift {

/// How parameters follow gradients, with torch's meaning of each number.
struct OptimizerRule {
  enum class Kind { kAdamW, kSgd } kind = Kind::kAdamW;
  double learning_rate = 1e-3;
  double weight_decay = 0.01;
  double beta1 = 0.9;  // SGD: its momentum
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

/// How the same rule is computed.
enum class OptimizerForm {
  kLoop,     // a few operations per parameter, as torch's C++ optimizers do
  kForeach,  // the same operations, each over all parameters at once
  kFused,    // one kernel for all; can be captured in a graph
};

/// Updates parameters by their gradients. State lies beside the parameters and is allocated at once.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Where `found_inf` (an FP32 scalar on the device) is not 0, nothing changes; only the fused form takes it without
  /// waiting for the device.
  virtual void step(const std::optional<torch::Tensor>& found_inf = std::nullopt) = 0;
};

/// `parameters` are leaves that will have gradients of their own type when step() is called. Throws
/// std::invalid_argument for a rule that a form does not have.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerRule& rule, OptimizerForm form,
                                          std::vector<torch::Tensor> parameters);

}  // namespace gpulift
