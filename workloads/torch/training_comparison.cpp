#include "training_comparison.hpp"

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstddef>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "checkpointing.hpp"
#include "core/cuda/device.hpp"

namespace gpulift {
namespace {

// Some seconds a step at 50 GFLOP/s, what a few cores reach: with its checks, a case is then minutes.
constexpr double kHostFlops = 2e11;

/// The same where the processor lacks the format's products and torch computes them one by one, at 0.2 GFLOP/s.
constexpr double kEmulatedFlops = 4e8;

/// While it lives, cuDNN takes the kernel that it guesses to be fast: a reference has types and layouts of its own, and
/// to time all kernels for it takes longer than its few steps.
class CudnnGuesses {
 public:
  CudnnGuesses() { at::globalContext().setBenchmarkCuDNN(false); }
  ~CudnnGuesses() { at::globalContext().setBenchmarkCuDNN(true); }
  CudnnGuesses(const CudnnGuesses&) = delete;
  CudnnGuesses& operator=(const CudnnGuesses&) = delete;
};

void step_with_each_batch(TrainingRun& run) {
  for (std::size_t i = 0; i < run.batches(); ++i) run.step();
}

}  // namespace

std::int64_t parts_of(std::int64_t batch_size, std::int64_t rows) {
  std::int64_t parts = (batch_size + rows - 1) / rows;
  while (batch_size % parts != 0) ++parts;
  return parts;
}

TrainingOptions recomputing() {
  return {.prepare = [](Model& model) {
    auto* const checkpointable = dynamic_cast<Checkpointable*>(&model);
    if (checkpointable != nullptr) checkpointable->use_checkpointing(Checkpointing::kEveryBlock);
  }};
}

/// One arm's run and its step, and which losses it should have.
struct TrainingComparison::Instance {
  std::shared_ptr<TrainingRun> run;
  TorchSession::Work step;
  std::vector<double> expected;
};

/// What the check needs: the arm that was made last, and the losses that arms should have.
struct TrainingComparison::Checked {
  int steps;
  std::uint64_t seed;
  TrainingOptions reference_options = {};
  bool exact = false;  // the reference has the arms' kernels
  std::map<std::pair<double, std::int64_t>, std::vector<double>> references = {};  // by items of a step, and its parts
  std::weak_ptr<Instance> current = {};

  const std::vector<double>& reference_of(const Workload& workload, std::int64_t micro_batches,
                                          const TrainingOptions& arm, torch::Device device) {
    std::vector<double>& reference = references[{workload.items, micro_batches}];
    if (reference.empty()) {
      // Parts fit any memory and may take minutes. Whether the arm fits at all, one of its steps tells.
      if (micro_batches > 1) TrainingRun(workload, arm, device, seed).step();
      if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
      reference = reference_losses(workload, micro_batches, device);
      if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
    }
    return reference;
  }

  /// The first step was taken; the others follow here.
  std::vector<double> losses_of_current() const {
    const auto instance = current.lock();
    if (instance == nullptr || !instance->run->loss().defined()) return {};
    std::vector<double> losses{instance->run->loss().item<double>()};
    while (losses.size() < static_cast<std::size_t>(steps)) {
      instance->step();
      losses.push_back(instance->run->loss().item<double>());
    }
    return losses;
  }

 private:
  std::vector<double> reference_losses(const Workload& workload, std::int64_t micro_batches,
                                       torch::Device device) const {
    std::optional<CudnnGuesses> guesses;
    if (!exact) guesses.emplace();
    TrainingOptions options = reference_options;
    options.micro_batches = micro_batches;
    TrainingRun run(workload, options, device, seed);
    const auto batches = run.batches();
    const auto all = losses_of(run, steps * static_cast<int>(batches));
    std::vector<double> of_each_step;
    for (std::size_t last = batches - 1; last < all.size(); last += batches) of_each_step.push_back(all[last]);
    return of_each_step;
  }
};

TrainingComparison::TrainingComparison(Trial& trial, Workload workload, int checked_steps)
    : trial_(trial), session_(trial), workload_(std::move(workload)), checked_(std::make_shared<Checked>()) {
  if (!session_.on_device() && workload_.flops > kHostFlops) {
    std::ostringstream reason;
    reason << "a step of " << workload_.flops / 1e9 << " GFLOP takes too long without a GPU";
    trial.skip(reason.str(), "run it on a machine with a GPU");
  }
  checked_->steps = checked_steps;
  checked_->seed = trial.seed();
}

Cost TrainingComparison::cost(Precision precision) const { return cost_of(workload_, precision); }

Cost TrainingComparison::cost_of(const Workload& workload, Precision precision) const {
  return {.flops = workload.flops,
          .items = workload.items,
          .item = workload.item,
          .roof = roof_of(precision, session_.device())};
}

Arm TrainingComparison::arm(const std::string& name, const TrainingOptions& options,
                            const ArmOptions& arm_options) const {
  const Workload workload = arm_options.workload.value_or(workload_);
  const torch::Device device = session_.device();
  const auto make = [checked = checked_, workload, options, device, wrap = arm_options.wrap,
                     reference_micro_batches = arm_options.reference_micro_batches] {
    const auto instance = std::make_shared<Instance>();
    // First, so that it never lies beside the arm: a batch that the arm can train must not fail for its check.
    instance->expected = checked->reference_of(workload, reference_micro_batches, options, device);
    instance->run = std::make_shared<TrainingRun>(workload, options, device, checked->seed);
    instance->step = wrap ? wrap(instance->run) : [run = instance->run.get()] { step_with_each_batch(*run); };
    checked->current = instance;
    return [instance] { instance->step(); };
  };
  TorchSession::ArmOptions session_options;
  session_options.cost = arm_options.cost.value_or(cost_of(workload, options.precision));
  session_options.tolerance = arm_options.tolerance;
  session_options.graph_bytes = arm_options.graph_bytes;
  if (arm_options.metrics) {
    session_options.metrics = [checked = checked_, metrics = arm_options.metrics] {
      return metrics(*checked->current.lock()->run);
    };
  }
  Arm arm = session_.arm(name, make, session_options);
  if (session_.on_device()) arm.unavailable = why_not_in(options.precision, trial_.device().architecture());
  if (!session_.on_device() && !host_multiplies_in(options.precision) && workload.flops > kEmulatedFlops) {
    arm.unavailable = "the processor has no products of this format, and torch takes too long without them";
  }
  return arm;
}

void TrainingComparison::compare(std::vector<Arm> arms, double tolerance, const TrainingOptions& reference) {
  checked_->reference_options = reference;
  compare_with("against FP32, relative to the first", std::move(arms), tolerance);
}

void TrainingComparison::compare_exactly(std::vector<Arm> arms, const TrainingOptions& reference, double tolerance) {
  checked_->reference_options = reference;
  checked_->exact = true;
  compare_with(tolerance > 0 ? "against plain steps, relative to the first" : "exactly those of plain steps",
               std::move(arms), tolerance);
}

void TrainingComparison::compare_with(const std::string& reference, std::vector<Arm> arms, double tolerance) {
  trial_.cost(cost(Precision::kFp32));
  trial_.check({.meaning = "losses of " + std::to_string(checked_->steps) +
                           " steps from the same weights on the same data, " + reference,
                .error =
                    [this](StreamHandle stream) {
                      double error = std::numeric_limits<double>::quiet_NaN();
                      session_.run(stream, [&] {
                        const auto losses = checked_->losses_of_current();
                        if (losses.empty()) return;
                        error = largest_deviation(losses, checked_->current.lock()->expected);
                      });
                      return error;
                    },
                .tolerance = tolerance});
  trial_.compare(std::move(arms));
}

}  // namespace gpulift
