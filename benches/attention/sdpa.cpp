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

/// What ran, from one more forward pass. Throws std::runtime_error where it is not what the arm says in every layer.
gpulift::Metrics form_that_ran(gpulift::TrainingRun& run, Precision precision, const std::string& arm,
                               std::int64_t layers) {
  const gpulift::Autocast autocast(precision, run.batch().input.device());
  const std::map<std::string, int> ran = gpulift::attention_forms_behind(run.model().loss(run.batch()));
  const auto found = ran.find(arm);
  if (ran.size() != 1 || found == ran.end() || found->second != layers) {
    throw std::runtime_error("the arm " + arm + " computed attention in another way");
  }
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
  comparison.compare({arm("explicit", gpulift::Attention::kExplicit, gpulift::use_any_backend),
                      library("math", SdpBackend::kMath), library("memory_efficient", SdpBackend::kMemoryEfficient),
                      library("flash", SdpBackend::kFlash), library("cudnn", SdpBackend::kCudnn)},
                     kTolerance);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What do fused attention kernels save of a training step, by length of the sequence?",
    .expectation = R"(
        GPT-2 with 4 layers, 8192 tokens a step, BF16. Without attention: 3.3 TFLOP at 600 TFLOP/s are 5.5 ms, the
        logits' 15 GB 3.6 ms, the rest 6 ms: 15 ms. The explicit form moves about 74 bytes per score, forward and
        backward: 4 x 12 x 8192 x tokens x 74 B / 4.1 TB/s = 3.6 ms at 512 tokens, 7 at 1024, 14 at 2048, 58 at 8192,
        and 0.4 to 5 ms of products. Flash does half of the products at 300 TFLOP/s: 0.3 to 5 ms. So flash gains 1.2,
        1.5, 1.9 and 3.9; cuDNN as much at 512, 4.3 at 8192; memory-efficient, half as fast, 3.1 at 8192. Math computes
        in FP32 what it gets in BF16: the same bytes, and 2.5 TFLOP at 45 TFLOP/s at 8192: 0.8 at 512, 0.6 at 8192.
        Memory: the explicit form keeps 6 bytes per score: 19 GB of 30 at 8192, math 8 bytes; the others 8 GB in all.
        The toy (4 layers, width 64, one row) is bound by launches, of which flash saves 10 of 45 a layer: 1.1 up to
        2048 tokens, 8 at 8192. On a CPU, in FP32 where it has no BF16, flash gains 1.5 at 512 tokens, 2 at 2048.)",
    .claims = {"efficient-attention-faster"},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"explicit", "math", "memory_efficient", "flash", "cudnn"},
    .sweep = {{"model", {"gpt2_4_layers", "gpt_toy"}}, {"tokens", {512, 1024, 2048, 8192}}},
    .quick = {},
    .run = run,
};
