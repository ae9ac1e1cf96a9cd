#include <cstdint>
#include <map>
#include <string>

#include "workloads/torch/checkpointing.hpp"
#include "workloads/torch/largest_batch.hpp"
#include "workloads/torch/training_comparison.hpp"

namespace {

using gpulift::Checkpointing;
using gpulift::Precision;

// Each arm's batch has a reference of its own, and at equal batches 20 steps are checked.
constexpr int kStepsCheckedAtLargest = 5;

struct Model {
  std::int64_t batch_size;  // equal for all arms
  std::int64_t probe;       // a small batch: memory is measured at it and at twice that
  bool channels_last;
  double fp32, bf16;  // tolerances of the losses, as precision/mixed
};

const Model& model_named(const std::string& name) {
  static const std::map<std::string, Model> all{{"gpt2", {8, 2, false, 1e-3, 0.02}},
                                                {"resnet50", {128, 16, true, 1e-3, 0.01}},
                                                {"gpt_toy", {16, 256, false, 1e-3, 0.02}}};
  return all.at(name);
}

void run(gpulift::Trial& trial) {
  const std::string name = trial.word("model");
  const Model& model = model_named(name);
  const bool largest = trial.word("batch") == "largest";
  gpulift::TrainingComparison comparison =
      largest ? gpulift::TrainingComparison(trial, gpulift::make_workload(name, model.probe), kStepsCheckedAtLargest)
              : gpulift::TrainingComparison(trial, gpulift::make_workload(name, model.batch_size));
  const bool on_device = comparison.session().on_device();
  if (largest && !on_device) trial.skip("the budget is of device memory", "run it on a machine with a GPU");
  if (largest && name == "gpt_toy") {
    trial.skip("attention kernels of torch fail at so many rows as would fit", "take another model");
  }

  const auto arm = [&](const std::string& arm_name, Precision precision, Checkpointing policy) {
    const gpulift::TrainingOptions options{
        .precision = precision, .channels_last = model.channels_last, .prepare = [policy](gpulift::Model& trained) {
          dynamic_cast<gpulift::Checkpointable&>(trained).use_checkpointing(policy);
        }};
    gpulift::TrainingComparison::ArmOptions arm_options;
    // A host's kernels repeat, and then a step with checkpoints is the same to the last bit.
    const double fp32 = on_device ? model.fp32 : 0;
    arm_options.tolerance = precision == Precision::kFp32 ? fp32 : model.bf16;
    if (largest) {
      arm_options.workload = gpulift::make_workload(
          name, gpulift::largest_batch_of(trial, comparison.session(), arm_name, name, options, model.probe));
    }
    return comparison.arm(arm_name, options, arm_options);
  };
  comparison.compare({arm("bf16", Precision::kBf16, Checkpointing::kNone),
                      arm("bf16_selective", Precision::kBf16, Checkpointing::kSelective),
                      arm("bf16_every_block", Precision::kBf16, Checkpointing::kEveryBlock),
                      arm("fp32", Precision::kFp32, Checkpointing::kNone),
                      arm("fp32_every_block", Precision::kFp32, Checkpointing::kEveryBlock)},
                     model.fp32, largest ? gpulift::recomputing() : gpulift::TrainingOptions{});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What memory does activation checkpointing save in mixed precision, and what does it cost?",
    .expectation = R"(
        Selective recomputes every second block. GPT-2, 8 rows of 1024: weights, gradients and moments 1.9 GiB; the
        logits' gradients 3 x 1.5 GiB in FP32 whatever is recomputed; each of 12 blocks 16 tensors of 24 MiB, 0.37 GiB,
        4.5 in all. FP32 10.9 GiB; every block recomputed, 12 x 24 MiB + 0.37 GiB instead of 4.5: 7.0, 36 % less. BF16
        8.4, recomputed 7.0 too: no 60 %. Time: a forward pass of the blocks is a quarter of a step: 0.80 of the speed
        in BF16 as in FP32, selective 0.89. ResNet-50, 128 images, channels_last: FP32 13.6 GiB, BF16 5.5; recomputed,
        block inputs (2.6 and 1.3 GiB), the stem and one block (1.2 and 0.6) and weights stay: 4.2 and 2.4, 82 % less
        than FP32 for both together, at 0.77 of BF16's speed. Within 12 GiB: GPT-2 9 rows in FP32, 12 in BF16, 15
        recomputed; ResNet-50 110, 280 and 640 images. A step is filled at 9 rows: items per second stay 20 % below
        those without. On a host: gpt_toy 0.75 of the speed, and equal losses.)",
    .predict = {{.arm = "bf16_selective",
                 .cases = {{"model", "gpt2"}, {"batch", "equal"}},
                 .on = "nvidia",
                 .speedup = {{0.801, 0.979}}},
                {.arm = "bf16_every_block", .cases = {{"model", "gpt2"}}, .on = "nvidia", .speedup = {{0.72, 0.88}}},
                {.arm = "bf16_every_block",
                 .cases = {{"model", "resnet50"}, {"batch", "equal"}},
                 .on = "nvidia",
                 .speedup = {{0.693, 0.847}}},
                {.arm = "bf16_every_block",
                 .cases = {{"model", "gpt_toy"}, {"batch", "equal"}},
                 .on = "cpu",
                 .speedup = {{0.675, 0.825}}}},
    .claims = {"checkpointing-saves-60-percent"},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"bf16", "bf16_selective", "bf16_every_block", "fp32", "fp32_every_block"},
    .controls = {"fp32", "fp32_every_block"},  // with TF32 off, as nobody trains
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"gpt_toy", "gpt2", "resnet50"}}, {"batch", {"equal", "largest"}}},
    .run = run,
};
