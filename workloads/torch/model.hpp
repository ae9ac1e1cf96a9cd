#pragma once

#include <torch/nn/module.h>

namespace gpulift {

/// What one training step sees: seeded synthetic data, made once, where the step runs.
struct Batch {
  torch::Tensor input;         // images [N, C, H, W], tokens [N, T] (int64) or features [N, F]
  torch::Tensor target;        // classes [N], the next tokens [N, T] (both int64), or values [N, F]
  torch::Tensor lengths = {};  // valid tokens of each row [N] (int64); undefined where every row is full
};

/// A model with its loss. Parameters are named as in torchvision or Hugging Face, so that weights load both ways.
class Model : public torch::nn::Module {
 public:
  /// Logits or values of a batch; the shapes are the model's.
  virtual torch::Tensor forward(const Batch& batch) = 0;
  /// The mean loss over the batch, a scalar in FP32.
  virtual torch::Tensor loss(const Batch& batch) = 0;
};

}  // namespace gpulift
