#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "workloads/torch/largest_batch.hpp"
#include "workloads/torch/training_comparison.hpp"

namespace {

using gpulift::Precision;

// Each arm's batch has a reference of its own, and at equal batches 20 steps are checked.
constexpr int kStepsCheckedAtLargest = 5;

struct Model {
  std::int64_t batch_size;  // equal for all arms
  std::int64_t probe;       // a small batch: memory is measured at it and at twice that
  bool channels_last;       // for all arms: layout is another technique's subject
  // Of losses of 20 steps against FP32. TF32 and FP16 have 10 bits after the point, BF16 has 7: 1e-3 and 8e-3 per
  // product, of which most averages out of a loss. Weights in BF16 lose digits once more in every step.
  double fp32, tf32, fp16, bf16, pure_bf16;
};

const Model& model_named(const std::string& name) {
  static const std::map<std::string, Model> all{{"resnet50", {128, 16, true, 1e-3, 3e-3, 0.01, 0.01, 0.05}},
                                                {"gpt2", {8, 2, false, 1e-3, 3e-3, 0.02, 0.02, 0.05}},
                                                {"lstm", {64, 16, false, 1e-3, 0.01, 0.02, 0.02, 0.05}},
                                                {"mlp", {4096, 512, false, 1e-3, 0.01, 0.05, 0.05, 0.1}},
                                                {"gpt_toy", {8, 256, false, 1e-3, 3e-3, 0.02, 0.02, 0.05}}};
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

  const auto arm = [&](const std::string& arm_name, double tolerance) {
    const gpulift::TrainingOptions options{.precision = gpulift::precision_named(arm_name),
                                           .channels_last = model.channels_last};
    gpulift::TrainingComparison::ArmOptions arm_options;
    arm_options.tolerance = tolerance;
    if (largest) {
      arm_options.workload = gpulift::make_workload(
          name, gpulift::largest_batch_of(trial, comparison.session(), arm_name, name, options, model.probe));
    }
    return comparison.arm(arm_name, options, arm_options);
  };
  if (!on_device) trial.note("tf32_computed_in", "fp32: TF32 is a format of GPUs");
  std::vector<gpulift::Arm> arms;
  arms.push_back(arm("tf32", model.tf32));
  arms.push_back(arm("fp16", model.fp16));
  arms.push_back(arm("bf16", model.bf16));
  arms.push_back(arm("pure_bf16", model.pure_bf16));
  arms.push_back(arm("fp32", model.fp32));
  comparison.compare(std::move(arms), model.fp32, largest ? gpulift::recomputing() : gpulift::TrainingOptions{});
}

gpulift::Point case_of(const std::string& model, const std::string& batch) {
  return {{"model", model}, {"batch", batch}};
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "What do FP16 with loss scaling and BF16 save of a whole training step over TF32, and what would FP32 cost?",
    .expectation = R"(
        Products reach 50 TFLOP/s in FP32, 390 in TF32 and 745 in FP16 and BF16; all else moves bytes at 4.1 TB/s, half
        as many where activations are halved. mlp, 4096 rows: 3.2 TFLOP are 63, 8.1 and 4.2 ms, AdamW over 134M
        parameters 0.9 ms, casts and activations 1 ms: 65, 10 and 6.3 ms: 16 bits 1.6 times, FP32, a control, 0.15.
        gpt2, 8 x 1024 tokens: 8.2 TFLOP: 152 ms FP32, 61 TF32, 36 BF16 and FP16 (PyTorch in Python on an H200): 16
        bits 1.7 times, FP32 0.4; pure BF16 spares casts of weights: 33 ms, 1.85 times. ResNet-50, 128 images,
        channels_last: 120, 40, 22 (FP16) and 27 ms (BF16): FP16 1.8 times, BF16 1.5, FP32 0.33. lstm: 128 dependent
        steps in each of 2 layers bound it: 0.5 TFLOP are 9 ms in FP32 beside 6 ms of dependent steps: 15, 8 and 7 ms:
        16 bits 1.14 times, FP32 0.53. The scaler passes once more over the gradients, 1 %. gpt_toy is bound by
        launches: below 1, since casts are launches too; on a host without units for 16 bits far below. Peak memory is
        not half of FP32's, since FP32 weights, gradients and moments stay: gpt2 0.73, ResNet-50 0.4. Within 12 GiB 1.5
        times the rows of gpt2 in FP32 fit, 2.4 times the images: the batch doubles for images only, and the rate of
        neither rises by more than 5 % over that of the equal batch.)",
    .predict = {{.arm = "fp16", .cases = case_of("mlp", "equal"), .on = "h200", .speedup = {{1.43, 1.75}}},
                {.arm = "bf16", .cases = case_of("mlp", "equal"), .on = "h200", .speedup = {{1.43, 1.75}}},
                {.arm = "fp32", .cases = case_of("mlp", "equal"), .on = "h200", .speedup = {{0.138, 0.169}}},
                {.arm = "fp16", .cases = case_of("gpt2", "equal"), .on = "h200", .speedup = {{1.52, 1.86}}},
                {.arm = "bf16", .cases = case_of("gpt2", "equal"), .on = "h200", .speedup = {{1.52, 1.86}}},
                {.arm = "pure_bf16", .cases = case_of("gpt2", "equal"), .on = "h200", .speedup = {{1.66, 2.03}}},
                {.arm = "fp32", .cases = case_of("gpt2", "equal"), .on = "h200", .speedup = {{0.361, 0.441}}},
                {.arm = "fp16", .cases = case_of("resnet50", "equal"), .on = "h200", .speedup = {{1.64, 2}}},
                {.arm = "bf16", .cases = case_of("resnet50", "equal"), .on = "h200", .speedup = {{1.33, 1.63}}},
                {.arm = "fp32", .cases = case_of("resnet50", "equal"), .on = "h200", .speedup = {{0.3, 0.367}}},
                {.arm = "fp16", .cases = case_of("lstm", "equal"), .on = "h200", .speedup = {{1.03, 1.26}}},
                {.arm = "bf16", .cases = case_of("lstm", "equal"), .on = "h200", .speedup = {{1.03, 1.26}}},
                {.arm = "fp32", .cases = case_of("lstm", "equal"), .on = "h200", .speedup = {{0.48, 0.587}}}},
    .claims = {"mixed-precision-doubles-batch", "mixed-precision-faster", "mixed-precision-less-memory",
               "tensor-cores-convolution-faster"},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"tf32", "fp16", "bf16", "pure_bf16", "fp32"},
    .controls = {"fp32"},  // with TF32 off
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"gpt_toy", "mlp", "lstm", "gpt2", "resnet50"}}, {"batch", {"equal", "largest"}}},
    .run = run,
};
