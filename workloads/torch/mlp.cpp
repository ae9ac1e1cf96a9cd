#include "mlp.hpp"

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <string>

namespace gpulift {
namespace {

constexpr std::int64_t kLayers = 8;
constexpr std::int64_t kWidth = 4096;

class Mlp : public Model {
 public:
  Mlp() {
    for (std::int64_t i = 0; i < kLayers; ++i) layers_->push_back(torch::nn::Linear(kWidth, kWidth));
    register_module("layers", layers_);
  }

  torch::Tensor forward(const Batch& batch) override {
    torch::Tensor activation = batch.input;
    for (std::int64_t i = 0; i < kLayers; ++i) {
      if (i > 0) activation = torch::relu(activation);
      activation = layers_[i]->as<torch::nn::Linear>()->forward(activation);
    }
    return activation;
  }

  torch::Tensor loss(const Batch& batch) override {
    return torch::mse_loss(forward(batch).to(torch::kFloat32), batch.target);
  }

 private:
  torch::nn::ModuleList layers_;
};

}  // namespace

Workload mlp_workload(std::int64_t batch_size) {
  Workload workload;
  workload.make_model = [](torch::Device /*device*/) { return std::make_shared<Mlp>(); };
  workload.make_batch = [batch_size]() -> Batch {
    return {torch::randn({batch_size, kWidth}), torch::randn({batch_size, kWidth})};
  };
  // A product forward, two backward; the first layer needs no gradient of its input.
  workload.flops = 2.0 * static_cast<double>(batch_size * kWidth * kWidth) * (3 * kLayers - 1);
  workload.items = static_cast<double>(batch_size);
  workload.item = "sample";
  return workload;
}

}  // namespace gpulift
