// In which format a product of FP16 operands is summed, and whether its sums are split. The baseline is the algorithm
// that cuBLASLt's heuristic puts first, split or not, as torch.mm takes it. All others are searched alike: the control
// fp32_sums, whole sums, tells what a search is worth by itself. cuBLASLt has other kernels for FP16 sums than for FP32
// ones: another control takes the kernel of FP16 sums, tile for tile, for FP32 ones, so that the format is told from
// its kernels. The errors beside the times are the other half of the answer.

#include <string>
#include <utility>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/matmul_comparison.hpp"

namespace {

using gpulift::MatmulOptions;
using gpulift::MatmulShape;
using gpulift::MatmulType;
using gpulift::SplitK;

void run(gpulift::Trial& trial) {
  const MatmulShape shape = gpulift::parse_matmul_shape(trial.word("shape"));
  gpulift::MatmulComparison products(trial, shape);
  const MatmulOptions whole{.split_k = SplitK::kNever};
  const gpulift::MatmulSearch none{.budget_s = 0, .candidates = 1};
  std::vector<gpulift::Arm> arms{products.arm("first_choice", MatmulType::kFp16, {}, none),
                                 products.arm("fp32_sums", MatmulType::kFp16, whole),
                                 products.arm("fp16_sums", MatmulType::kFp16Sums, whole),
                                 products.arm_like("fp16_sums", "fp32_sums_like_fp16", MatmulType::kFp16, whole),
                                 products.arm("split_fp32_sums", MatmulType::kFp16, {.split_k = SplitK::kAlways})};
  // Consumer cards sum in FP16 at twice the rate that gemm/fp16 means.
  arms[2].cost = gpulift::Cost{.flops = shape.flops()};
  products.compare("relative Frobenius error against the FP64 product of the unrounded originals", std::move(arms));
}

gpulift::Point burst_of(const std::string& shape) { return {{"shape", shape}, {"regime", "burst"}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "What are sums in FP16, or split sums, worth over the library's own choice for a product of FP16 matrices, and "
        "what do they cost in error?",
    .expectation = R"(
        Written when whole FP32 sums had been the baseline: over these, on H100 and H200, searched FP16 sums had 0.67 to
        0.99 and split ones of 256 x 256 x 16384 5.9 to 7.1. The baseline is now the first choice of cuBLASLt, which
        knows shapes: 4 tiles of 128 x 128 for 132 multiprocessors it splits, so that split sums gain there what a
        search gains, 1.1, and whole ones have 0.17. Where it does not, split sums have 6.5 as before, and the range is
        missed. 512 cubed are 16 tiles of 32 steps, 1024 cubed 64: it may split these, too, which is worth some
        microsecond of 6 or 8. At 4096 and 8192 cubed it takes whole sums, and a search gains 1 to 4 %: fp32_sums has
        1.02. The tensor cores sum in FP16 and FP32 at one rate, so FP16 sums gain nothing there, 0.97 and 1.0; of few
        tiles they have the loss of their kernels and of whole sums, 0.13 (GeForce cards: 2x of many). The error grows
        from 4e-4, which is the rounding of operands and result, to 0.3 x 2^-11 x sqrt(k / 16): 2e-3 to 3e-3 at 4096,
        5e-3 at 16384. fp32_sums_like_fp16 takes an FP16 kernel's tiles, and nobody runs it.)",
    .predict =
        {{.arm = "split_fp32_sums", .cases = burst_of("256x256x16384"), .on = "nvidia-h", .speedup = {{0.95, 1.4}}},
         {.arm = "fp32_sums", .cases = burst_of("256x256x16384"), .on = "nvidia-h", .speedup = {{0.13, 0.25}}},
         {.arm = "fp16_sums", .cases = burst_of("256x256x16384"), .on = "nvidia-h", .speedup = {{0.09, 0.22}}},
         {.arm = "fp32_sums", .cases = burst_of("4096x4096x4096"), .on = "nvidia-h", .speedup = {{0.99, 1.06}}},
         {.arm = "fp32_sums", .cases = burst_of("8192x8192x8192"), .on = "nvidia-h", .speedup = {{0.99, 1.06}}},
         {.arm = "fp16_sums", .cases = burst_of("4096x4096x4096"), .on = "nvidia-h", .speedup = {{0.92, 1.03}}},
         {.arm = "fp16_sums", .cases = burst_of("8192x8192x8192"), .on = "nvidia-h", .speedup = {{0.96, 1.05}}}},
    .found = R"(
        Over the library's choice, of 4096 cubed on an H200 in three launches, fp16_sums have 0.95: algorithm 39, of 2
        candidates, against 66, which the search takes as well. Over searched whole FP32 sums, until 2026-11-29: on an
        H100, two launches, fp16_sums had 0.67x to 0.90x; on an H200, four launches, 0.98 to 0.99 of 8192 cubed, 0.95 to
        0.97 of 4096, 0.67 to 0.84 of the small ones. By the notes cuBLASLt offers algorithms 39 and 21 for FP16 sums, 2
        to 7 candidates, and algorithm 66 for FP32 ones, 8 or 9. fp32_sums_like_fp16 exists where 21 won, 512 cubed:
        FP32 sums in the kernel of FP16 ones had 0.81, FP16 ones 0.82 to 0.84, so that there the loss is the kernel's
        and the format gains 2 to 3 %. Elsewhere 39 won, which cuBLASLt does not have for FP32 sums. Errors grow as
        predicted, to 2.4e-3 at 4096 and 4.7e-3 at 16384. Split sums of 256x256x16384 had 6.6x to 7.1x on an H200, 5.9x
        on an H100, in 8 parts: whole they take 77 us, as four multiprocessors need 72 us at the peak of 7.5 TFLOP/s
        each. In 4096 and 8192 cubed none of its algorithms splits the sum.)",
    .arms = {"first_choice", "fp32_sums", "fp16_sums", "fp32_sums_like_fp16", "split_fp32_sums"},
    .controls = {"fp32_sums", "fp32_sums_like_fp16"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"shape", {"256x256x16384", "512x512x512", "1024x1024x1024", "4096x4096x4096", "8192x8192x8192"}},
              {"regime", {"burst", "sustained"}}},
    .quick = {{{"shape", "4096x4096x4096"}, {"regime", "burst"}}},
    .run = run,
};
