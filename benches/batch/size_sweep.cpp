#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/torch/training_comparison.hpp"
#include "workloads/torch/workload.hpp"

namespace {

using gpulift::Precision;

/// How a model is trained at every batch size. The type belongs to the model and not to the machine, so that a case is
/// the same everywhere: BF16 for those that need a GPU, FP32 for those that a CPU can train too.
struct Plan {
  gpulift::TrainingOptions options;
  std::int64_t smallest = 1;
  // Of a part of the plain steps in FP32 that an arm is checked against: they must take less memory than the arm, or
  // it is they that set the limit. 0: batch norms need the whole batch.
  std::int64_t reference_rows = 1024;
};

Plan plan_of(const std::string& model) {
  if (model == "resnet50") {
    return {.options = {.precision = Precision::kBf16, .channels_last = true}, .reference_rows = 0};
  }
  // Its last norms see one value per image and channel: of two or three, rounding decides the loss.
  if (model == "resnet18") return {.options = {}, .smallest = 4, .reference_rows = 0};
  if (model == "gpt_toy" || model == "lstm_toy") return {.options = {}};
  if (model == "gpt2") return {.options = {.precision = Precision::kBf16}, .reference_rows = 8};
  return {.options = {.precision = Precision::kBf16}};
}

// The rate follows the batch (P. Goyal et al., arXiv:1706.02677), so that the losses of small ones can be compared. Not
// beyond this: larger rates need the warm-up of that paper, which a few steps are not.
constexpr std::int64_t kRateGrowsTo = 256;

gpulift::Workload workload_of(const std::string& model, std::int64_t batch_size) {
  gpulift::Workload workload = gpulift::make_workload(model, batch_size);
  workload.rule.learning_rate *= static_cast<double>(std::min(batch_size, kRateGrowsTo)) / kRateGrowsTo;
  return workload;
}

constexpr int kCheckedSteps = 3;

void run(gpulift::Trial& trial) {
  const std::string model = trial.word("model");
  const std::int64_t batch_size = trial.number("batch");
  const Plan plan = plan_of(model);
  if (plan.options.precision == Precision::kBf16 && !trial.has_device()) {
    trial.skip("steps of this model take seconds without a GPU",
               "take resnet18, gpt_toy or lstm_toy, or a machine with a GPU");
  }
  if (batch_size < plan.smallest) {
    trial.skip("the model's norms need more images", "take a batch of " + std::to_string(plan.smallest) + " or more");
  }
  gpulift::TrainingComparison comparison(trial, workload_of(model, batch_size), kCheckedSteps);
  trial.note("smallest_batch", std::to_string(plan.smallest));
  const bool whole = plan.reference_rows == 0;
  const auto arm = [&](const std::string& name, std::int64_t rows) {
    gpulift::TrainingComparison::ArmOptions options;
    options.workload = workload_of(model, rows);
    options.reference_micro_batches = whole ? 1 : gpulift::parts_of(rows, plan.reference_rows);
    return comparison.arm(name, plan.options, options);
  };
  comparison.compare({arm("smallest_batch", plan.smallest), arm("batch", batch_size)},
                     plan.options.precision == Precision::kBf16 ? 0.01 : 1e-3,
                     whole ? gpulift::recomputing() : gpulift::TrainingOptions{});
}

std::vector<gpulift::Value> batches() {
  return {1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 128, 255, 256, 1024, 2048, 4096, 8192};
}

gpulift::Point case_of(const std::string& model, std::int64_t batch) { return {{"model", model}, {"batch", batch}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How do samples per second grow with the batch, and where do they stop growing?",
    .expectation = R"(
        Both arms take one step, of the smallest batch and of the case's; the speedup is per item. The knee is the
        smallest batch of a model whose rate is within 5 % of its best. A step takes max(launches, fixed + work): fixed
        is what the optimizer and the many kernels that do not fill the GPU cost at any batch, and a knee lies beyond
        some 20 times fixed / work of an item. ResNet-50 (BF16, channels_last): some 900 launches at 10 to 20 us bound
        up to 64 images, 60 to 100 images/s for one; then 4.4 ms + 0.195 ms an image, 4700/s at 256: knee at 450, of
        these sizes 1024; 45 MB an image: of 150 GB, 2048 fit and 4096 do not. GPT-2 (BF16): 800 launches are 18 ms,
        then 6 ms + 4.1 ms a row of 1024 tokens: knee at 30 to 60, 240 rows/s = 245 thousand tokens/s; 0.96 GB a row:
        128 fit and 255 do not. LSTM: its 128 steps in time, 9 to 15 ms, bound it up to 128 rows, then 4 ms + 36 us a
        row: knee at 1024; 17 MB a row: 4096 fit, and 8192, 141 GB and a fifth more reserved, do not. ResNet-18 (FP32,
        32 pixels): 350 launches are 2.5 ms, an image is 5 us: the rate grows to 500, knee at 1024. Odd batches cost
        nothing: 255 within 1 % of 256 an image, 7 within 2 % of the line between 4 and 8. On a CPU at 50 GFLOP/s
        ResNet-18's image is 4.4 ms and its optimizer, 11 M parameters x 20 bytes / 10 GB/s, 22 ms: knee at 128; an LSTM
        of 32 units takes some 600 operations at 5 us for its 16 steps in time, 3 ms, and a row 35 us: knee at 1024. Out
        of memory is recorded as skipped: the limit of the model on this machine.)",
    .predict =
        {{.arm = "smallest_batch", .cases = {{"model", "resnet50"}}, .on = "h200", .step_time_s = {{10e-3, 16.7e-3}}},
         {.arm = "batch", .cases = case_of("resnet50", 256), .on = "h200", .step_time_s = {{49e-3, 59.9e-3}}},
         {.arm = "smallest_batch", .cases = {{"model", "gpt2"}}, .on = "h200", .step_time_s = {{16.2e-3, 19.8e-3}}},
         {.arm = "batch", .cases = case_of("gpt2", 64), .on = "h200", .step_time_s = {{242e-3, 295e-3}}},
         {.arm = "smallest_batch", .cases = {{"model", "lstm"}}, .on = "h200", .step_time_s = {{9e-3, 15e-3}}},
         {.arm = "batch", .cases = case_of("lstm", 1024), .on = "h200", .step_time_s = {{36.8e-3, 45e-3}}},
         {.arm = "smallest_batch", .cases = {{"model", "resnet18"}}, .on = "h200", .step_time_s = {{2.25e-3, 2.75e-3}}},
         {.arm = "batch", .cases = case_of("resnet18", 256), .on = "cpu", .step_time_s = {{1.03, 1.26}}},
         {.arm = "batch", .cases = case_of("lstm_toy", 1024), .on = "cpu", .step_time_s = {{35e-3, 42.7e-3}}}},
    .found = R"(
        GPT-2's step of one row is its 768 launches, as predicted, but the pace of a host differs from case to case: 11
        to 21 ms in one sweep, 14 to 27 us a launch. ResNet-18's 256 images take 0.38 and 0.43 s on a core that does 130
        to 150 GFLOP/s, not 50.)",
    .claims = {"larger-batch-faster", "larger-batch-more-memory"},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"smallest_batch", "batch"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"resnet50", "gpt2", "lstm", "resnet18", "gpt_toy", "lstm_toy"}}, {"batch", batches()}},
    .quick = {},  // one case tells little, and all take minutes
    .run = run,
};
