// In which format a product of FP16 operands is summed, and whether its sums are split. Each arm is searched alike, but
// cuBLASLt has other kernels for FP16 sums than for FP32 ones: a control takes the kernel of FP16 sums, tile for tile,
// for FP32 ones, so that the format is told from its kernels. The errors beside the times are the other half of the
// answer.

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
  std::vector<gpulift::Arm> arms{products.arm("fp32_sums", MatmulType::kFp16, whole),
                                 products.arm("fp16_sums", MatmulType::kFp16Sums, whole),
                                 products.arm_like("fp16_sums", "fp32_sums_like_fp16", MatmulType::kFp16, whole),
                                 products.arm("split_fp32_sums", MatmulType::kFp16, {.split_k = SplitK::kAlways})};
  // Consumer cards sum in FP16 at twice the rate that gemm/fp16 means.
  arms[1].cost = gpulift::Cost{.flops = shape.flops()};
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
        adding: 5x. In 4096 cubed, 512 tiles of 128 x 256, they cost the adding of 2 x 64 MB in FP32: 0.7x to 0.8x.
        fp32_sums_like_fp16 came after a first record: if the rate of the tensor cores is the same, FP32 sums in the
        kernels of FP16 ones are as slow as these were found, 0.90x and 0.88x, to 3 %. It says what the format is worth,
        and as nobody runs it, it is a control.)",
    .predict = {{.arm = "fp16_sums", .cases = burst_of("4096x4096x4096"), .on = "h100", .speedup = {{0.97, 1.03}}},
                {.arm = "fp16_sums", .cases = burst_of("8192x8192x8192"), .on = "h100", .speedup = {{0.97, 1.03}}},
                {.arm = "split_fp32_sums", .cases = burst_of("256x256x16384"), .on = "h100", .speedup = {{4.5, 5.5}}},
                {.arm = "split_fp32_sums", .cases = burst_of("4096x4096x4096"), .on = "h100", .speedup = {{0.7, 0.8}}},
                {.arm = "fp32_sums_like_fp16",
                 .cases = burst_of("4096x4096x4096"),
                 .on = "nvidia-h",
                 .speedup = {{0.87, 0.93}}},
                {.arm = "fp32_sums_like_fp16",
                 .cases = burst_of("8192x8192x8192"),
                 .on = "nvidia-h",
                 .speedup = {{0.85, 0.91}}}},
    .found = R"(
        H100, two launches: fp16_sums has 0.67x to 0.90x in place of 1.0x; an H200, four launches: 0.98 to 0.99 of 8192
        cubed, 0.95 to 0.97 of 4096, 0.67 to 0.84 of the small ones. By the notes cuBLASLt offers algorithms 39 and 21
        for FP16 sums, 2 to 7 candidates, and algorithm 66 for FP32 ones, 8 or 9. The control exists where 21 won, 512
        cubed: FP32 sums in the kernel of FP16 ones have 0.81, FP16 ones 0.82 to 0.84, so that there the loss is the
        kernel's and the format gains 2 to 3 %. Elsewhere 39 won, which cuBLASLt does not have for FP32 sums, so that
        what was predicted of the control at 4096 and 8192 cannot be measured: of these the records tell no more than
        that FP16 sums do not pay. Errors grow as predicted, to 2.4e-3 at 4096 and 4.7e-3 at 16384. Split sums of
        256x256x16384 have 6.6x to 7.1x on an H200, 5.9x on an H100, in 8 parts, not 5x: whole they take 77 us, not 45,
        which was reckoned wrong: four multiprocessors need 72 us at the peak of 7.5 TFLOP/s each. In 4096 and 8192
        cubed none of its algorithms splits the sum.)",
    .arms = {"fp32_sums", "fp16_sums", "fp32_sums_like_fp16", "split_fp32_sums"},
    .controls = {"fp32_sums_like_fp16"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"shape", {"256x256x16384", "512x512x512", "1024x1024x1024", "4096x4096x4096", "8192x8192x8192"}},
              {"regime", {"burst", "sustained"}}},
    .quick = {{{"shape", "4096x4096x4096"}, {"regime", "burst"}}},
    .run = run,
};
