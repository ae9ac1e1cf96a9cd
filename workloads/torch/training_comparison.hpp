#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torch_session.hpp"
#include "training.hpp"

namespace gpulift {

/// Into how many equal parts a batch must be split for none to have more rows.
std::int64_t parts_of(std::int64_t batch_size, std::int64_t rows);

/// Plain steps that keep few activations and compute the others again, in FP32 too: for arms that fill the memory with
/// what they save. Of a model without checkpoints, just plain steps.
TrainingOptions recomputing();

/// A case whose arms train the same workload in different ways. They are checked by their losses: some steps from the
/// same weights on the same batch, against plain steps in FP32 with TF32 off. Where the workload has several batches, a
/// step of an arm is a training step with each of them.
class TrainingComparison {
 public:
  /// Skips the case where there is no GPU and its steps would take minutes. `checked_steps`: how many losses must
  /// agree.
  TrainingComparison(Trial& trial, Workload workload, int checked_steps = 20);

  const TorchSession& session() const { return session_; }
  const Workload& workload() const { return workload_; }
  /// Of a step at this precision: the model's flops and items, and the products' roof.
  Cost cost(Precision precision) const;

  /// What a step that wraps a run does with it, such as replaying a graph of it.
  using Wrap = std::function<TorchSession::Work(const std::shared_ptr<TrainingRun>&)>;
  struct ArmOptions {
    std::optional<double> tolerance = {};   // where it differs from the comparison's
    Wrap wrap = {};                         // none: the step is the run's
    std::optional<Workload> workload = {};  // where it differs: a smaller batch, say
    std::optional<Cost> cost = {};          // where it is not the workload's
    // Of the plain steps that it is checked against: where parts of a batch have another loss than the whole, as batch
    // norms make it, or where the whole would take more memory than the arm.
    std::int64_t reference_micro_batches = 1;
    std::function<double()> graph_bytes = {};           // see TorchSession::ArmOptions
    std::function<Metrics(TrainingRun&)> metrics = {};  // see TorchSession::ArmOptions
  };
  Arm arm(const std::string& name, const TrainingOptions& options, const ArmOptions& arm_options) const;
  Arm arm(const std::string& name, const TrainingOptions& options) const { return arm(name, options, ArmOptions{}); }

  /// Gives the check and compares. Arms are NaN where they did not train, and so fail. `reference`: how the plain steps
  /// save memory, such as recomputing(); their losses must stay the same.
  void compare(std::vector<Arm> arms, double tolerance, const TrainingOptions& reference = {});
  /// The losses must be exactly those of a plain run with these options; with a tolerance, as near to them as runs of
  /// the same code come, whose kernels add in any order.
  void compare_exactly(std::vector<Arm> arms, const TrainingOptions& reference, double tolerance = 0);

 private:
  struct Instance;
  struct Checked;

  Cost cost_of(const Workload& workload, Precision precision) const;
  void compare_with(const std::string& reference, std::vector<Arm> arms, double tolerance);

  Trial& trial_;
  TorchSession session_;
  Workload workload_;
  std::shared_ptr<Checked> checked_;  // outlives this object with the arms that refer to it
};

}  // namespace gpulift
