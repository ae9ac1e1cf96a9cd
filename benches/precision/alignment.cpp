// Sides of a matrix product that are no multiples of what tensor cores and copies work on: as they are, and padded.
// Rates count the operations that were asked for, so that what padding multiplies in vain is its cost. Padding is free
// where weights and results are made padded once, as a vocabulary is; where activations come unpadded (the terms of
// the sum, k), "to_64_copied" copies them into padded rows each step.

#include <array>
#include <string>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/matmul_comparison.hpp"

namespace {

using gpulift::MatmulOptions;
using gpulift::MatmulShape;

constexpr auto kType = gpulift::MatmulType::kBf16;

struct Padding {
  const char* arm;
  std::int64_t multiple;
  bool copied = false;
};
constexpr std::array<Padding, 6> kPaddings{
    {{"as_is", 1}, {"to_8", 8}, {"to_16", 16}, {"to_64", 64}, {"to_128", 128}, {"to_64_copied", 64, true}}};

gpulift::Arm make_arm(gpulift::MatmulComparison& products, const Padding& padding, const MatmulShape& shape) {
  const MatmulOptions options{.stored = padded_to(shape, padding.multiple), .pads_b = padding.copied};
  if (padding.copied && options.stored.k == shape.k) {
    return {.name = padding.arm, .make = {}, .unavailable = "the activations need no padding: k is 64-fold"};
  }
  return products.arm(padding.arm, kType, options);
}

void run(gpulift::Trial& trial) {
  const MatmulShape shape = gpulift::parse_matmul_shape(trial.word("shape"));
  gpulift::MatmulComparison products(trial, shape);
  std::vector<gpulift::Arm> arms;
  for (const Padding& padding : kPaddings) arms.push_back(make_arm(products, padding, shape));
  products.compare("relative Frobenius error of the unpadded part against FP64", std::move(arms),
                   matmul_tolerance(kType, shape.k));
}

gpulift::Point burst_of(const std::string& shape) { return {{"shape", shape}, {"regime", "burst"}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "From which padding of odd sides on is a matrix product faster than unpadded?",
    .expectation = R"(
        H100 SXM, bf16. Rows of an odd number of elements begin at any 2 bytes: neither the tensor copy engine (16
        bytes) nor vector loads can fetch them, so the library takes kernels of the generation before, 200 to 300 of
        some 680 TFLOP/s. As is, the GPT-2 head (50257x8192x768, 0.63 TFLOP) has rows of 768 to read and odd ones to
        write alone: 1.6 ms against 1.05 ms padded to 8, which writes 0.8 GB (0.27 ms) either way; backward, with k =
        50257, 2.5 ms against 1.0 ms. 8 elements are 16 bytes and bring most of it, 1.5x for odd n and 2.5x for odd k;
        16, 64 and 128 add less than 5 %. 10922 is even, 4 bytes: published 273 TFLOP/s against 398 for 10944 on an
        H100. The copy reads and writes 2 x 0.82 GB of 50257 columns, 0.55 ms, half of what it saves; that of 10922 x
        8192, 0.36 GB, 0.12 ms of 1.1. Small products (1 GFLOP and 2) are bound by launch and fill: 1.2x to 1.5x.)",
    .predict =
        {{.arm = "as_is", .cases = burst_of("50257x8192x768"), .on = "h100", .step_time_s = {{1.44e-3, 1.76e-3}}},
         {.arm = "to_8", .cases = burst_of("50257x8192x768"), .on = "h100", .step_time_s = {{945e-6, 1.16e-3}}},
         {.arm = "to_8", .cases = burst_of("768x8192x50257"), .on = "h100", .speedup = {{2.25, 2.75}}},
         {.arm = "to_64_copied", .cases = burst_of("768x8192x50257"), .on = "h100", .speedup = {{1.45, 1.77}}},
         {.arm = "to_8", .cases = burst_of("4095x4096x4096"), .on = "h100", .speedup = {{1.35, 1.65}}},
         {.arm = "to_8", .cases = burst_of("4096x4096x4095"), .on = "h100", .speedup = {{2.25, 2.75}}},
         {.arm = "to_64", .cases = burst_of("10922x8192x4096"), .on = "h100", .speedup = {{1.31, 1.6}}},
         {.arm = "to_8", .cases = burst_of("1023x1024x1024"), .on = "h100", .speedup = {{1.2, 1.5}}},
         {.arm = "to_8", .cases = burst_of("1024x1024x1023"), .on = "h100", .speedup = {{1.2, 1.5}}}},
    .claims = {},
    .arms = {"as_is", "to_8", "to_16", "to_64", "to_128", "to_64_copied"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    // Outputs x tokens x inputs: one side odd in a small and a large product; a SwiGLU of width 8/3 x 4096, up and
    // down; GPT-2's head forward and backward.
    .sweep = {{"shape",
               {"1023x1024x1024", "1024x1024x1023", "4095x4096x4096", "4096x4096x4095", "10922x8192x4096",
                "4096x8192x10922", "50257x8192x768", "768x8192x50257"}},
              {"regime", {"burst", "sustained"}}},
    .quick = {{{"shape", "4096x4096x4095"}, {"regime", "burst"}}},
    .run = run,
};
