#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "workloads/torch/gpt.hpp"
#include "workloads/torch/precision.hpp"
#include "workloads/torch/sdp_backend.hpp"
#include "workloads/torch/training_comparison.hpp"

namespace {

using gpulift::GptConfig;
using gpulift::Precision;
using gpulift::SdpBackend;

constexpr std::int64_t kTokensPerStep = 8192;
// Losses of 20 steps in BF16, whose products keep 8 bits, against FP32.
constexpr double kTolerance = 0.03;

/// Of twelve layers the explicit form would keep 58 GB of scores at 8192 tokens.
GptConfig config_of(const std::string& model, std::int64_t tokens) {
  if (model == "gpt2_4_layers") return {.layers = 4, .tokens = tokens};
  return {.layers = 4, .width = 64, .heads = 4, .tokens = tokens, .vocabulary = 64};
}

/// Throws std::runtime_error where logits know of later tokens, or do not of earlier ones: attention does so little for
/// the losses of a model's first steps that they agree without a mask.
void require_the_past_alone(gpulift::TrainingRun& run) {
  const torch::NoGradGuard no_grad;
  auto& model = dynamic_cast<gpulift::Gpt&>(run.model());
  gpulift::Batch other = run.batch();
  const std::int64_t tokens = other.input.size(1);
  const std::int64_t third = tokens / 3;
  other.input = other.input.clone();
  other.input.narrow(1, third, third).zero_();
  const torch::Tensor apart = (model.forward(other) - model.forward(run.batch())).abs().amax({0, 2});
  const auto before = apart.narrow(0, 0, third).max().item<double>();
  const auto behind = apart.narrow(0, 2 * third, tokens - 2 * third).min().item<double>();
  if (!(before < 1e-3 * behind)) throw std::runtime_error("attention is not to the tokens before alone");
}

/// What ran, from one more forward pass. Throws std::runtime_error where it is not what the arm says in every layer.
gpulift::Metrics form_that_ran(gpulift::TrainingRun& run, Precision precision, const std::string& arm,
                               std::int64_t layers) {
  const gpulift::Autocast autocast(precision, run.batch().input.device());
  const std::map<std::string, int> ran = gpulift::attention_forms_behind(run.model().loss(run.batch()));
  const auto found = ran.find(arm);
  if (ran.size() != 1 || found == ran.end() || found->second != layers) {
    throw std::runtime_error("the arm " + arm + " computed attention in another way");
  }
  require_the_past_alone(run);
  return {{arm + "_attention_layers", static_cast<double>(layers)}};
}

void run(gpulift::Trial& trial) {
  const gpulift::BackendsRestored restored;
  const std::string model = trial.word("model");
  const GptConfig config = config_of(model, trial.number("tokens"));
  const std::int64_t rows = model == "gpt2_4_layers" ? std::max<std::int64_t>(1, kTokensPerStep / config.tokens) : 1;
  gpulift::TrainingComparison comparison(trial, gpulift::gpt_workload(config, rows));
  const bool in_bf16 = comparison.session().on_device() || gpulift::host_multiplies_in(Precision::kBf16);
  const Precision precision = in_bf16 ? Precision::kBf16 : Precision::kFp32;
  if (!in_bf16) trial.note("computed_in", "fp32: the processor has no products in BF16");

  const auto arm = [&](const std::string& name, gpulift::Attention attention, const std::function<void()>& switches) {
    gpulift::TrainingComparison::ArmOptions options;
    options.metrics = [name, switches, precision, layers = config.layers](gpulift::TrainingRun& training) {
      switches();
      return form_that_ran(training, precision, name, layers);
    };
    return comparison.arm(
        name,
        {.precision = precision,
         .prepare =
             [attention](gpulift::Model& trained) { dynamic_cast<gpulift::Gpt&>(trained).use_attention(attention); },
         .before_step = switches},
        options);
  };
  const auto library = [&](const std::string& name, SdpBackend backend) {
    gpulift::Arm made = arm(name, gpulift::Attention::kSdpa, [backend] { gpulift::use_only(backend); });
    made.unavailable = gpulift::why_not(backend, {rows, config.heads, config.tokens, config.width / config.heads},
                                        in_bf16 ? torch::kBFloat16 : torch::kFloat32, comparison.session().device());
    if (!made.unavailable.empty()) {
      made.make = [reason = made.unavailable]() -> gpulift::Step { throw std::runtime_error(reason); };
    }
    return made;
  };
  // The FP32 reference is trained before the first arm: any back end may run then.
  comparison.compare({library("flash", SdpBackend::kFlash), library("cudnn", SdpBackend::kCudnn),
                      library("memory_efficient", SdpBackend::kMemoryEfficient), library("math", SdpBackend::kMath),
                      arm("explicit", gpulift::Attention::kExplicit, gpulift::use_any_backend)},
                     kTolerance);
}

gpulift::Point case_of(const std::string& model, std::int64_t tokens) { return {{"model", model}, {"tokens", tokens}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "Which fused attention makes a training step fastest, by length of the sequence, and what would none cost?",
    .expectation = R"(
        GPT-2 with 4 layers, 8192 tokens a step, BF16. Without attention: 3.3 TFLOP at 600 TFLOP/s are 5.5 ms, the
        logits' 15 GB 3.6 ms, the rest 6 ms: 15 ms. The explicit form moves about 74 bytes per score, forward and
        backward: 4 x 12 x 8192 x tokens x 74 B / 4.1 TB/s = 3.6 ms at 512 tokens, 7 at 1024, 14 at 2048, 58 at 8192,
        and 0.4 to 5 ms of products. Flash does half of the products at 300 TFLOP/s: 0.3 to 5 ms. Torch takes it by
        itself, but on compute capability 9.0 and 10.0, where it takes cuDNN: there nobody has to turn on what cuDNN is
        faster by. So the explicit form, a control, takes 1.2, 1.5, 1.9 and 3.9 times as long; cuDNN is as fast at 512,
        1.1 at 8192; memory-efficient, whose kernel is half as fast, 0.8 at 8192. Math, a control too, computes in FP32
        what it gets in BF16: the bytes of the explicit form, and 2.5 TFLOP at 45 TFLOP/s at 8192: 0.8 of that form's
        speed at 512, 0.6 at 8192, so 0.67 and 0.15 of flash's. Memory: the explicit form keeps 6 bytes per score: 19
        GB of 30 at 8192, math 8 bytes; the others 8 GB in all. The toy (4 layers, width 64, one row) is bound by
        launches, of which flash saves 10 of 45 a layer: the explicit form takes 1.1 times as long up to 2048 tokens, 8
        times at 8192. On a CPU, in FP32 where it has no BF16, 1.5 times at 512 tokens, twice at 2048.)",
    .predict = {{.arm = "cudnn", .cases = case_of("gpt2_4_layers", 512), .on = "h200", .speedup = {{0.95, 1.05}}},
                {.arm = "cudnn", .cases = case_of("gpt2_4_layers", 8192), .on = "h200", .speedup = {{0.992, 1.21}}},
                {.arm = "memory_efficient",
                 .cases = case_of("gpt2_4_layers", 8192),
                 .on = "h200",
                 .speedup = {{0.715, 0.874}}},
                {.arm = "math", .cases = case_of("gpt2_4_layers", 512), .on = "h200", .speedup = {{0.6, 0.733}}},
                {.arm = "math", .cases = case_of("gpt2_4_layers", 8192), .on = "h200", .speedup = {{0.138, 0.169}}},
                {.arm = "explicit", .cases = case_of("gpt2_4_layers", 512), .on = "h200", .speedup = {{0.75, 0.917}}},
                {.arm = "explicit", .cases = case_of("gpt2_4_layers", 1024), .on = "h200", .speedup = {{0.6, 0.733}}},
                {.arm = "explicit", .cases = case_of("gpt2_4_layers", 2048), .on = "h200", .speedup = {{0.474, 0.579}}},
                {.arm = "explicit", .cases = case_of("gpt2_4_layers", 8192), .on = "h200", .speedup = {{0.231, 0.282}}},
                {.arm = "explicit", .cases = case_of("gpt_toy", 512), .on = "nvidia", .speedup = {{0.818, 1}}},
                {.arm = "explicit", .cases = case_of("gpt_toy", 1024), .on = "nvidia", .speedup = {{0.818, 1}}},
                {.arm = "explicit", .cases = case_of("gpt_toy", 2048), .on = "nvidia", .speedup = {{0.818, 1}}},
                {.arm = "explicit", .cases = case_of("gpt_toy", 8192), .on = "nvidia", .speedup = {{0.113, 0.138}}},
                {.arm = "explicit", .cases = case_of("gpt_toy", 512), .on = "cpu", .speedup = {{0.6, 0.733}}},
                {.arm = "explicit", .cases = case_of("gpt_toy", 2048), .on = "cpu", .speedup = {{0.45, 0.55}}}},
    .found = R"(
        On processors, one thread. At 512 tokens the explicit form has 1.1 of flash's speed in place of 0.67: a layer's
        scores are 2 MB in BF16, which stay in the caches. At 2048, 34 MB a layer, it takes 25 times as long and flash 6
        times: 0.29 in place of 0.5. That caches decide it is inferred, not traced. On an H200 2048 tokens take the
        explicit form 37.8 ms and flash 15.5: 22 ms are 113 bytes a score at 4.1 TB/s, products included, where 74 and
        0.4 to 5 ms of products were reckoned. cuDNN's is worth 1.04. No kernel was profiled.)",
    .claims = {"efficient-attention-faster"},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"flash", "cudnn", "memory_efficient", "math", "explicit"},
    .controls = {"math", "explicit"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"gpt2_4_layers", "gpt_toy"}}, {"tokens", {512, 1024, 2048, 8192}}},
    .run = run,
};
