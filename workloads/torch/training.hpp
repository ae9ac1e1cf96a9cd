#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "optimizer.hpp"
#include "precision.hpp"
#include "workload.hpp"

namespace gpulift {

/// How a workload is trained. The defaults are the plain baseline.
struct TrainingOptions {
  Precision precision = Precision::kFp32;
  bool channels_last = false;
  OptimizerForm optimizer = OptimizerForm::kFused;
  bool keep_gradients = false;               // zeroed in place, not freed: a graph of the update holds their addresses
  std::int64_t micro_batches = 1;            // the batch in so many equal parts, one optimizer step
  std::function<void(Model&)> prepare = {};  // once, after the model was made: switches that only it has
  std::function<void()> before_step = {};    // torch's global switches that this run needs; arms share them
};

/// One model in training: weights, data, optimizer. Two runs of the same workload and seed start alike.
class TrainingRun {
 public:
  /// Everything lies on `device`. Throws std::invalid_argument where the batch does not split into the micro-batches.
  TrainingRun(const Workload& workload, const TrainingOptions& options, torch::Device device, std::uint64_t seed);

  /// Zeroes the gradients, runs forward and backward, and lets the optimizer step. Waits for nothing.
  void step();
  /// The two parts of a step, for who wraps or times them: update() uses the gradients that forward_backward() left.
  void forward_backward();
  void update();
  /// Of the last step, before its update: a scalar on the device. Undefined before the first step.
  const torch::Tensor& loss() const { return loss_; }
  /// Makes the next steps learn from this batch alone.
  void use_batch(const Batch& batch);

  Model& model() { return *model_; }
  /// How many batches the steps take in turn.
  std::size_t batches() const { return batches_.size(); }
  /// What the next step learns from.
  const Batch& batch() const { return batches_[next_batch_]; }
  bool keeps_gradients() const { return options_.keep_gradients; }
  const GradScaler* scaler() const { return scaler_ ? &*scaler_ : nullptr; }

 private:
  /// On the device, in the type and layout of this run.
  Batch placed(const Batch& batch) const;
  void run_micro_batch(const Batch& batch);

  TrainingOptions options_;
  torch::Device device_;
  std::shared_ptr<Model> model_;
  std::vector<Batch> batches_;  // taken in turn
  std::size_t next_batch_ = 0;
  std::vector<torch::Tensor> parameters_;  // of the model
  std::vector<torch::Tensor> masters_;     // in FP32, where the model's are not
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<GradScaler> scaler_;
  torch::Tensor loss_;
};

/// Losses of the next `steps` steps.
std::vector<double> losses_of(TrainingRun& run, int steps);
/// The largest |found - expected| over the steps, relative to the first loss expected: the last ones come near 0 where
/// a batch is learnt by heart. NaN when one of them is.
double largest_deviation(const std::vector<double>& found, const std::vector<double>& expected);

}  // namespace gpulift
