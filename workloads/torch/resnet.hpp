#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cstdint>
#include <memory>

#include "checkpointing.hpp"
#include "workload.hpp"

namespace gpulift {

struct ResnetConfig {
  bool bottleneck = true;  // blocks of 1x1, 3x3 and 1x1 convolutions; else of two 3x3
  std::array<std::int64_t, 4> blocks = {};
  std::int64_t pixels = 0;
  std::int64_t classes = 0;
};

ResnetConfig resnet50_config();  // 224 pixels, 1000 classes
/// 32 pixels, 10 classes, with the stem that is made for 224: its last stage sees single pixels, so that a batch needs
/// at least 2 images for its norms.
ResnetConfig resnet18_config();

/// Multiply-adds of convolutions and the linear layer in the forward pass of one image.
double resnet_products(const ResnetConfig& config);

/// torchvision's residual network (K. He et al., arXiv:1512.03385; v1.5: the 3x3 convolution has the stride), with its
/// names and its first weights.
class Resnet : public Model, public Checkpointable {
 public:
  explicit Resnet(const ResnetConfig& config);

  /// Logits [N, classes] of images [N, 3, S, S].
  torch::Tensor forward(const Batch& batch) override;
  torch::Tensor loss(const Batch& batch) override;

  /// A block that is recomputed updates the running statistics of its norms twice; training does not read them.
  void use_checkpointing(Checkpointing policy) override { checkpointing_ = policy; }

 private:
  class Block;

  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::array<torch::nn::ModuleList, 4> layers_;
  torch::nn::Linear fc_;
  Checkpointing checkpointing_ = Checkpointing::kNone;
};

/// Trains on synthetic images.
Workload resnet_workload(const ResnetConfig& config, std::int64_t batch_size);
Workload resnet50_workload(std::int64_t batch_size);
Workload resnet18_workload(std::int64_t batch_size);

}  // namespace gpulift
