#pragma once
// For tests: a network of two small layers, whose steps take microseconds on any machine.

#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>

#include "workload.hpp"

namespace gpulift::testing_workloads {

class TwoLayers : public Model {
 public:
  TwoLayers() : first_(register_module("first", torch::nn::Linear(8, 16))) {
    second_ = register_module("second", torch::nn::Linear(16, 4));
  }
  torch::Tensor forward(const Batch& batch) override { return second_(torch::relu(first_(batch.input))); }
  torch::Tensor loss(const Batch& batch) override {
    return torch::mse_loss(forward(batch).to(torch::kFloat32), batch.target);
  }

 private:
  torch::nn::Linear first_;
  torch::nn::Linear second_ = nullptr;
};

inline Workload two_layers(std::int64_t batch_size) {
  Workload workload;
  workload.name = "two_layers";
  workload.make_model = [](torch::Device /*device*/) { return std::make_shared<TwoLayers>(); };
  workload.make_batch = [batch_size]() -> Batch {
    return {torch::randn({batch_size, 8}), torch::randn({batch_size, 4})};
  };
  workload.flops = static_cast<double>(batch_size) * 2 * (2 * 8 * 16 + 3 * 16 * 4);
  workload.items = static_cast<double>(batch_size);
  workload.item = "sample";
  workload.rule.learning_rate = 0.02;
  return workload;
}

}  // namespace gpulift::testing_workloads
