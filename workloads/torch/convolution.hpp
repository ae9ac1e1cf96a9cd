#pragma once

#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>

#include <cstdint>

namespace gpulift {

/// A square convolution without bias, padded so that stride 1 keeps the size of an image.
struct Convolution {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t groups = 1;

  /// Its layer, with torchvision's first weights (K. He et al., arXiv:1502.01852, by outputs).
  torch::nn::Conv2d layer() const {
    auto layer = torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding((kernel - 1) / 2).groups(groups).bias(false));
    torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
    return layer;
  }

  /// Width of its output for an input of this width.
  std::int64_t width(std::int64_t input_width) const { return (input_width - 1) / stride + 1; }
  /// Multiply-adds for one image of this width.
  double products(std::int64_t input_width) const {
    const std::int64_t pixels = width(input_width) * width(input_width);
    return static_cast<double>(out * (in / groups) * kernel * kernel * pixels);
  }
};

/// Floating-point operations of a training step: forward, and backward to weights and inputs, each two per
/// multiply-add. The first convolution needs no gradient of the images.
inline double training_flops(double products, double first_products, std::int64_t batch_size) {
  return 2.0 * static_cast<double>(batch_size) * (3 * products - first_products);
}

}  // namespace gpulift
