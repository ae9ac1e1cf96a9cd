// What a number format is worth in a matrix product: the same originals, layout, workspace and search for every arm.

#include <array>
#include <string>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/matmul_comparison.hpp"

namespace {

using gpulift::MatmulType;

constexpr std::array kTypes{MatmulType::kTf32, MatmulType::kFp16, MatmulType::kBf16, MatmulType::kFp8,
                            MatmulType::kFp32};

void run(gpulift::Trial& trial) {
  gpulift::MatmulComparison products(trial, gpulift::parse_matmul_shape(trial.word("shape")));
  std::vector<gpulift::Arm> arms;
  for (const MatmulType type : kTypes) {
    arms.push_back(products.arm(matmul_type_name(type), type, {}, {.budget_s = 2}));
  }
  products.compare("relative Frobenius error against the FP64 product of the unrounded originals", std::move(arms));
}

gpulift::Point burst_of(const std::string& shape) { return {{"shape", shape}, {"regime", "burst"}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How much faster does a matrix product get with fewer bits per number, and how much less exact?",
    .expectation = R"(
        H200, 8192 cubed: fp32, a control, reaches 50 TFLOP/s, tf32 400, fp16 and bf16 750, fp8 1350: 15x and 27x of
        fp32, and of tf32 1.9x and 3.4x, 0.125x for fp32. 512 cubed is 0.27 GFLOP: 64 tiles of 64 x 64 leave half of
        the 132 multiprocessors idle, so fp32 takes about 10 us and the others are bound by launch and pipeline fill at
        3 to 5 us: 2x to 3x of fp32, whatever the format. The GPT-2 product has k = 768 only: 77 GFLOP take 103 us in
        bf16, during which 131 MB must be moved (32 us of 4.1 TB/s), so bf16 falls to 11x to 14x of fp32 and fp8 below
        20x. Errors: a format with unit roundoff u gives 0.6 u, and 0.74 u with a result rounded to it: fp32 1e-6 or
        less, tf32 3e-4 to 8e-4, fp16 4e-4, bf16 3e-3, fp8 4e-2. Sums of fp8 are in cuBLASLt's fast mode, which forward
        products of a training take.)",
    .predict = {{.arm = "fp16", .cases = burst_of("8192x8192x8192"), .on = "h200", .speedup = {{1.69, 2.06}}},
                {.arm = "bf16", .cases = burst_of("8192x8192x8192"), .on = "h200", .speedup = {{1.69, 2.06}}},
                {.arm = "fp8", .cases = burst_of("8192x8192x8192"), .on = "h200", .speedup = {{3.04, 3.71}}},
                {.arm = "fp32", .cases = burst_of("8192x8192x8192"), .on = "h200", .speedup = {{0.113, 0.138}}},
                {.arm = "bf16", .cases = burst_of("512x512x512"), .on = "h200", .step_time_s = {{3e-6, 5e-6}}},
                {.arm = "fp32", .cases = burst_of("512x512x512"), .on = "h200", .speedup = {{0.333, 0.5}}},
                {.arm = "bf16", .cases = burst_of("3072x16384x768"), .on = "h200", .step_time_s = {{110e-6, 141e-6}}}},
    .claims = {"half-precision-8x", "half-precision-16x", "tensor-cores-bf16-faster", "fewer-bits-faster"},
    .arms = {"tf32", "fp16", "bf16", "fp8", "fp32"},
    .controls = {"fp32"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    // Last: the first layer of GPT-2's MLP (768 to 3072 features) over 16 sequences of 1024 tokens.
    .sweep = {{"shape",
               {"512x512x512", "1024x1024x1024", "2048x2048x2048", "4096x4096x4096", "8192x8192x8192",
                "16384x16384x16384", "3072x16384x768"}},
              {"regime", {"burst", "sustained"}}},
    .quick = {{{"shape", "1024x1024x1024"}, {"regime", "burst"}}, {{"shape", "8192x8192x8192"}, {"regime", "burst"}}},
    .run = run,
};
