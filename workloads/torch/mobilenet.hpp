#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>

#include "workload.hpp"

namespace gpulift {

/// Multiply-adds of convolutions and the linear layer in the forward pass of one image of so many pixels a side.
double mobilenet_products(std::int64_t pixels);

/// MobileNet v2 (M. Sandler et al., arXiv:1801.04381): inverted residuals around depthwise 3x3 convolutions, batch norm
/// and ReLU6. Named and initialised as in torchvision, without its dropout. 1000 classes.
class Mobilenet : public Model {
 public:
  Mobilenet();

  /// Logits [N, 1000] of images [N, 3, S, S].
  torch::Tensor forward(const Batch& batch) override;
  torch::Tensor loss(const Batch& batch) override;

 private:
  torch::nn::Sequential features_;
  torch::nn::ModuleList classifier_;
};

/// Trains on synthetic images of 224 pixels.
Workload mobilenet_workload(std::int64_t batch_size);
/// Images of 96 pixels, for machines without a GPU.
Workload mobilenet_small_workload(std::int64_t batch_size);

}  // namespace gpulift
