// In which format a product of FP16 operands is summed, and whether its sums are split. Each arm is searched alike; the
// errors beside the times are the other half of the answer.

#include <array>
#include <string>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/matmul_comparison.hpp"

namespace {

using gpulift::MatmulShape;
using gpulift::MatmulType;
using gpulift::SplitK;

struct Sums {
  const char* arm;
  MatmulType type;
  SplitK split;
};
constexpr std::array<Sums, 3> kSums{{{"fp32_sums", MatmulType::kFp16, SplitK::kNever},
                                     {"fp16_sums", MatmulType::kFp16Sums, SplitK::kNever},
                                     {"split_fp32_sums", MatmulType::kFp16, SplitK::kAlways}}};

void run(gpulift::Trial& trial) {
  const MatmulShape shape = gpulift::parse_matmul_shape(trial.word("shape"));
  gpulift::MatmulComparison products(trial, shape);
  std::vector<gpulift::Arm> arms;
  for (const Sums& sums : kSums) {
    arms.push_back(products.arm(sums.arm, sums.type, {.split_k = sums.split}));
    // Consumer cards sum in FP16 at twice the rate that gemm/fp16 means.
    if (sums.type == MatmulType::kFp16Sums) arms.back().cost = gpulift::Cost{.flops = shape.flops()};
  }
  products.compare("relative Frobenius error against the FP64 product of the unrounded originals", std::move(arms));
}

gpulift::Point burst_of(const std::string& shape) { return {{"shape", shape}, {"regime", "burst"}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "What are sums in FP16, or split sums, worth in a product of FP16 matrices, and what do they cost in error?",
    .expectation = R"(
        H100 SXM: its tensor cores sum in FP16 and FP32 at one rate, 989 TFLOP/s, so 4096 and 8192 cubed stay within 3
        %; half the registers of an accumulator and less power bring that much at most (GeForce cards: 2x). The error
        grows from 4e-4, which is the rounding of operands and result, to 0.3 x 2^-11 x sqrt(k / 16): 2e-3 to 3e-3 at
        4096, 5e-3 at 16384. Split sums pay where one tile per multiprocessor is too few: 256 x 256 x 16384 are 4 tiles
        of 128 x 128 for 132 multiprocessors, 2.1 GFLOP in some 45 us unsplit; in 16 parts 64 work, 6 to 8 us with the
        adding: 5x. In 4096 cubed, 512 tiles of 128 x 256, they cost the adding of 2 x 64 MB in FP32: 0.7x to 0.8x.)",
    .predict = {{.arm = "fp16_sums", .cases = burst_of("4096x4096x4096"), .on = "h100", .speedup = {{0.97, 1.03}}},
                {.arm = "fp16_sums", .cases = burst_of("8192x8192x8192"), .on = "h100", .speedup = {{0.97, 1.03}}},
                {.arm = "split_fp32_sums", .cases = burst_of("256x256x16384"), .on = "h100", .speedup = {{4.5, 5.5}}},
                {.arm = "split_fp32_sums", .cases = burst_of("4096x4096x4096"), .on = "h100", .speedup = {{0.7, 0.8}}}},
    .claims = {},
    .arms = {"fp32_sums", "fp16_sums", "split_fp32_sums"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"shape", {"256x256x16384", "512x512x512", "1024x1024x1024", "4096x4096x4096", "8192x8192x8192"}},
              {"regime", {"burst", "sustained"}}},
    .quick = {{{"shape", "4096x4096x4096"}, {"regime", "burst"}}},
    .run = run,
};
