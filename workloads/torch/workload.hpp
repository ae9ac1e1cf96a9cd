#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model.hpp"
#include "optimizer.hpp"

namespace gpulift {

/// A model with its data at one batch size, and what a training step of it costs by formula.
struct Workload {
  std::string name;
  // On the device or the host, with weights from torch's default generator. Large ones are drawn on the device: a
  // hundred million take half a second on a host, and each arm begins anew some times.
  std::function<std::shared_ptr<Model>(torch::Device device)> make_model;
  std::function<Batch()> make_batch;                      // on the host; data from torch's default generator
  std::function<std::vector<Batch>()> make_batches = {};  // of different shapes, in turn: an arm's step is all of them
  double flops = 0;  // of an arm's step: forward and backward, two per multiply-add; norms and the like not counted
  double items = 0;  // of an arm's step
  std::string item = {};    // "image", "token"
  OptimizerRule rule = {};  // as the model is usually trained
};

/// The workload of a name at a batch size: see workload_names(). Throws std::invalid_argument for another name.
Workload make_workload(const std::string& name, std::int64_t batch_size);
std::vector<std::string> workload_names();

/// The first `size` rows of a batch from `begin`, as views.
Batch rows_of(const Batch& batch, std::int64_t begin, std::int64_t size);
Batch to_device(const Batch& batch, torch::Device device);

/// Classes, or next tokens, against logits [..., classes]: the mean cross entropy in FP32. A target of -100 has no
/// part.
torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& target);

}  // namespace gpulift
