#include <cstdint>
#include <map>
#include <string>

#include "workloads/torch/training_comparison.hpp"

namespace {

constexpr std::int64_t kMostParts = 16;
// Of plain steps in FP32: the memory of few rows suffices for an arm's parts, and should for its check.
constexpr std::int64_t kReferenceRows = 8;
// Rounding adds up from step to step: in BF16, 20 of GPT-2 came to 0.024.
constexpr int kCheckedSteps = 10;

struct Model {
  std::int64_t whole_batch;  // in parts or not
  std::int64_t micro_batch;  // where the number of parts makes the batch
  gpulift::Precision precision;
  bool channels_last = false;
  bool batch_norm = false;  // then a loss depends on what else is in its part: parts are checked against parts
  double tolerance = 0;     // FP32: sums in another order; BF16: and rounded in every part
};

const Model& model_named(const std::string& name) {
  using gpulift::Precision;
  static const std::map<std::string, Model> all{
      {"gpt2", {.whole_batch = 16, .micro_batch = 2, .precision = Precision::kBf16, .tolerance = 0.03}},
      {"resnet50",
       {.whole_batch = 128,
        .micro_batch = 16,
        .precision = Precision::kBf16,
        .channels_last = true,
        .batch_norm = true,
        .tolerance = 0.01}},
      {"gpt_toy", {.whole_batch = 32, .micro_batch = 2, .precision = Precision::kFp32, .tolerance = 1e-3}},
      {"resnet18",
       {.whole_batch = 64, .micro_batch = 4, .precision = Precision::kFp32, .batch_norm = true, .tolerance = 1e-3}}};
  return all.at(name);
}

void run(gpulift::Trial& trial) {
  const std::string name = trial.word("model");
  const Model& model = model_named(name);
  const bool same_batch = trial.word("equal") == "batch";
  const auto batch_of = [&](std::int64_t parts) { return same_batch ? model.whole_batch : parts * model.micro_batch; };
  // The largest decides whether a host can do the case at all.
  gpulift::TrainingComparison comparison(trial, gpulift::make_workload(name, batch_of(kMostParts)), kCheckedSteps);

  const auto arm = [&](const std::string& arm_name, std::int64_t parts) {
    gpulift::TrainingComparison::ArmOptions options;
    const std::int64_t batch_size = batch_of(parts);
    options.workload = gpulift::make_workload(name, batch_size);
    options.reference_micro_batches = model.batch_norm ? parts : gpulift::parts_of(batch_size, kReferenceRows);
    return comparison.arm(arm_name,
                          {.precision = model.precision, .channels_last = model.channels_last, .micro_batches = parts},
                          options);
  };
  comparison.compare({arm("whole", 1), arm("micro_4", 4), arm("micro_16", kMostParts)}, model.tolerance);
}

gpulift::Point case_of(const std::string& model, const std::string& equal) {
  return {{"model", model}, {"equal", equal}};
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does accumulating gradients over micro-batches cost at an equal batch, and gain at equal ones?",
    .expectation = R"(
        Equal batch: the same arithmetic in smaller kernels and more launches; memory of activations falls with the
        parts. gpt2, 16 rows in BF16: 71 ms, in 16 parts 16 x 5 ms of launches (1000 at 5 us) = 80 ms: 0.85; in 4 parts
        4 x 18.5 ms: 0.97. Peak: 14 GiB, of which 2 GiB are weights, gradients and moments: 4 parts 5 GiB, 16 parts 2.8
        GiB. ResNet-50, 128 images: 27 ms; 16 parts of 8 images: 16 x 6 ms of launches: 0.28; 4 parts of 32: 4 x 7 ms:
        0.96. Equal micro-batch: items per second rise only by the optimizer's part: gpt2 with 2 rows: 8.9 ms, of which
        AdamW's 3.5 GB at 4.1 TB/s are 0.85 ms: (8.9 / 8.05 =) 1.10 per item at 16 parts, less the adding of gradients
        (1.5 GB, 0.36 ms, each part): 1.06. ResNet-50 with 16 images: SGD over 26M parameters is 0.13 ms of 6 ms: 1.01.
        On a host: gpt_toy and resnet18 lose 10 to 40 % in 16 parts, since small operations use threads badly. Where
        batches differ, ratios are per item.)",
    .predict =
        {{.arm = "whole", .cases = case_of("gpt2", "batch"), .on = "h200", .step_time_s = {{63.9e-3, 78.1e-3}}},
         {.arm = "micro_4", .cases = case_of("gpt2", "batch"), .on = "h200", .speedup = {{0.873, 1.07}}},
         {.arm = "micro_16", .cases = case_of("gpt2", "batch"), .on = "h200", .speedup = {{0.765, 0.935}}},
         {.arm = "whole", .cases = case_of("resnet50", "batch"), .on = "h200", .step_time_s = {{24.3e-3, 29.7e-3}}},
         {.arm = "micro_4", .cases = case_of("resnet50", "batch"), .on = "h200", .speedup = {{0.864, 1.06}}},
         {.arm = "micro_16", .cases = case_of("resnet50", "batch"), .on = "h200", .speedup = {{0.252, 0.308}}},
         {.arm = "micro_16", .cases = case_of("gpt2", "micro_batch"), .on = "h200", .speedup = {{0.954, 1.17}}},
         {.arm = "micro_16", .cases = case_of("resnet50", "micro_batch"), .on = "h200", .speedup = {{0.909, 1.11}}},
         {.arm = "micro_16", .cases = case_of("gpt_toy", "batch"), .on = "cpu", .speedup = {{0.6, 0.9}}},
         {.arm = "micro_16", .cases = case_of("resnet18", "batch"), .on = "cpu", .speedup = {{0.6, 0.9}}}},
    .found = R"(
        In 16 parts the host bounds the step on an H200: 14,420 launches of GPT-2 take 193 and 198 ms (0.37), 15,650 of
        ResNet-50 200 and 206 ms (0.14): 13 us each where 5 and 6 were assumed, with others on 1.5 to 1.9 of its 32
        cores. ResNet-18 on one core has 0.25: all three arms are 1.42 ms an image and 22.7 ms a part. That the latter
        is the reading of 11 M weights and the adding of their gradients is inferred, not traced; threads have no part
        in it.)",
    .claims = {"accumulation-saves-memory", "accumulation-faster"},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"whole", "micro_4", "micro_16"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"gpt_toy", "resnet18", "gpt2", "resnet50"}}, {"equal", {"batch", "micro_batch"}}},
    .run = run,
};
