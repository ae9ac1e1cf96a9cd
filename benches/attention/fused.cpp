// What it is worth that scores never reach memory: products and softmax one after the other, against cuDNN's fused
// attention, forward and backward.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/cuda/check.hpp"
#include "core/harness/technique.hpp"
#include "workloads/attention.hpp"
#include "workloads/cudnn/attention.hpp"
#include "workloads/matmul.hpp"

namespace {

using gpulift::AttentionShape;
using gpulift::AttentionTensors;
using gpulift::ElementType;
using gpulift::FusedAttention;
using gpulift::SeparateAttention;
using gpulift::StreamHandle;

constexpr ElementType kType = ElementType::kBf16;

/// As many tokens and as wide a model in every case.
AttentionShape shape_of(std::int64_t tokens, std::int64_t width) {
  constexpr std::int64_t kTokens = 16384;
  constexpr std::int64_t kModel = 2048;
  return {kTokens / tokens, kModel / width, tokens, width};
}

/// An arm with results of its own, which are `current` while it is the one that was made last.
template <typename Attention>
gpulift::Step step_of(Attention attention, gpulift::Device& device, const AttentionShape& shape,
                      const AttentionTensors& operands, std::weak_ptr<AttentionTensors>& current) {
  const auto results = std::make_shared<AttentionTensors>(device, kType, shape);
  const auto form = std::make_shared<Attention>(std::move(attention));
  current = results;
  form->enqueue(operands, *results, nullptr);  // loads kernels, which would wait for a stream that is held
  gpulift::check(cudaDeviceSynchronize());
  return [&operands, form, results](StreamHandle stream) { form->enqueue(operands, *results, stream); };
}

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const std::string reason = gpulift::why_matmul_unsupported(gpulift::MatmulType::kBf16, device.architecture());
  if (!reason.empty()) trial.skip(reason);
  trial.version("cudnn", gpulift::cudnn_version());
  const AttentionShape shape = shape_of(trial.number("tokens"), trial.number("head_width"));
  trial.cost({.flops = shape.flops(),
              .items = static_cast<double>(shape.batch * shape.tokens),
              .item = "token",
              .roof = "gemm/bf16"});

  const AttentionTensors operands(device, kType, shape);
  gpulift::fill_attention(operands, kType, shape, trial.seed(), 0, nullptr);
  gpulift::check(cudaDeviceSynchronize());
  std::weak_ptr<AttentionTensors> current;
  trial.check({.meaning = "largest relative Frobenius error of result and gradients of one head against FP64",
               .poison = [&](StreamHandle stream) { current.lock()->fill_with_nan(stream); },
               .error =
                   [&](StreamHandle stream) {
                     return gpulift::attention_error(device, *current.lock(), kType, shape, trial.seed(), stream);
                   },
               .tolerance = gpulift::kAttentionTolerance});

  gpulift::Arm separate{.name = "separate", .make = [&]() -> gpulift::Step {
                          return step_of(SeparateAttention(device, kType, shape), device, shape, operands, current);
                        }};
  const gpulift::CudnnLibrary library = gpulift::open_cudnn();
  gpulift::Arm fused{.name = "fused", .make = [&]() -> gpulift::Step {
                       return step_of(FusedAttention(device, library, kType, shape), device, shape, operands, current);
                     }};
  try {
    trial.note("plans", FusedAttention(device, library, kType, shape).plan_names());
  } catch (const gpulift::NotSupported& unavailable) {
    fused.unavailable = unavailable.what();
  }
  trial.compare({std::move(separate), std::move(fused)});
}

gpulift::Point burst_of(std::int64_t head_width, std::int64_t tokens) {
  return {{"head_width", head_width}, {"tokens", tokens}, {"regime", "burst"}};
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does attention gain, in time and memory, where its scores never reach memory?",
    .expectation = R"(
        16384 tokens of 2048 features, BF16, causal, forward and backward. One operation after the other moves 19 bytes
        a score: each of 6 products reads or writes 2, softmax reads 1 and writes 2, its gradient reads 2 and writes 2.
        At 3 TB/s and heads 64 wide: 1.7 ms at 512 tokens, 6.8 at 2048, 27 at 8192, 54 at 16384; half of that at 128.
        Fused, with half of the products masked away and one computed twice, it is bound by arithmetic: 5.5 ms at 8192
        tokens, 64 wide, at 350 TFLOP/s, 4.2 at 128, at 450; half of that at half of the tokens, but at 512 blocks on
        the diagonal are a quarter more. So 4.0 at 512 tokens, 5 from 2048 on with heads 64 wide, 3.3 with 128. Memory:
        4 bytes a score, 17 GB at 8192 tokens and 64 wide, 34 GB at 16384; fused 0.3 to 0.5 GB at every length.)",
    .predict = {{.arm = "separate", .cases = burst_of(64, 512), .on = "h100", .step_time_s = {{1.53e-3, 1.87e-3}}},
                {.arm = "separate", .cases = burst_of(64, 2048), .on = "h100", .step_time_s = {{6.12e-3, 7.48e-3}}},
                {.arm = "separate", .cases = burst_of(64, 8192), .on = "h100", .step_time_s = {{24.3e-3, 29.7e-3}}},
                {.arm = "separate", .cases = burst_of(64, 16384), .on = "h100", .step_time_s = {{48.6e-3, 59.4e-3}}},
                {.arm = "fused", .cases = burst_of(64, 512), .on = "h100", .speedup = {{3.6, 4.4}}},
                {.arm = "fused", .cases = burst_of(64, 2048), .on = "h100", .speedup = {{4.5, 5.5}}},
                {.arm = "fused", .cases = burst_of(64, 8192), .on = "h100", .speedup = {{4.5, 5.5}}},
                {.arm = "fused", .cases = burst_of(64, 16384), .on = "h100", .speedup = {{4.5, 5.5}}},
                {.arm = "fused", .cases = burst_of(128, 2048), .on = "h100", .speedup = {{2.97, 3.63}}},
                {.arm = "fused", .cases = burst_of(128, 8192), .on = "h100", .speedup = {{2.97, 3.63}}},
                {.arm = "fused", .cases = burst_of(128, 16384), .on = "h100", .speedup = {{2.97, 3.63}}}},
    .claims = {},
    .arms = {"separate", "fused"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"head_width", {64, 128}}, {"tokens", {512, 2048, 8192, 16384}}, {"regime", {"burst", "sustained"}}},
    .quick = {{{"head_width", 64}, {"tokens", 2048}, {"regime", "burst"}},
              {{"head_width", 128}, {"tokens", 8192}, {"regime", "burst"}}},
    .run = run,
};
