// Sides of a matrix product that are no multiples of what tensor cores and copies work on: as they are, and padded.
// torch.mm multiplies by cublasGemmEx, to which the choice of a kernel is left, alone and as PyTorch calls it; of
// cuBLASLt all candidates are timed, so that padding is told from a better choice. Rates count the operations that were
// asked for: what padding multiplies in vain is its cost. Padding is free where weights and results are made padded
// once, as a vocabulary is; where activations come unpadded (the terms of the sum, k), "to_64_copied" copies them into
// padded rows each step.

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/gemm_ex.hpp"
#include "workloads/matmul_comparison.hpp"

namespace {

using gpulift::MatmulComparison;
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

gpulift::Arm searched_arm(MatmulComparison& products, const Padding& padding, const MatmulShape& shape) {
  const MatmulOptions options{.stored = padded_to(shape, padding.multiple), .pads_b = padding.copied};
  if (padding.copied && options.stored.k == shape.k) {
    return {.name = padding.arm, .make = {}, .unavailable = "the activations need no padding: k is 64-fold"};
  }
  return products.arm(padding.arm, kType, options);
}

gpulift::Arm gemm_ex_arm(MatmulComparison& products, gpulift::Trial& trial, const std::string& name,
                         const MatmulShape& stored) {
  return products.arm_by(name, kType, {.stored = stored}, [&trial, stored]() -> MatmulComparison::Multiply {
    const auto gemm = std::make_shared<gpulift::GemmEx>(trial.device());
    return [gemm, stored](const auto& buffers, auto stream) { gemm->enqueue(stored, buffers, stream); };
  });
}

void run(gpulift::Trial& trial) {
  const MatmulShape shape = gpulift::parse_matmul_shape(trial.word("shape"));
  MatmulComparison products(trial, shape);
  std::vector<gpulift::Arm> arms{gemm_ex_arm(products, trial, "cublas_gemm_ex", shape),
                                 gemm_ex_arm(products, trial, "cublas_gemm_ex_to_64", padded_to(shape, 64)),
                                 gpulift::python_arm("torch_mm")};
  arms.back().cost = arms.front().cost;
  for (const Padding& padding : kPaddings) arms.push_back(searched_arm(products, padding, shape));
  products.compare("relative Frobenius error of the unpadded part against FP64", std::move(arms),
                   matmul_tolerance(kType, shape.k));
}

gpulift::Point burst_of(const std::string& shape) { return {{"shape", shape}, {"regime", "burst"}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "From which padding of odd sides on is a matrix product faster than unpadded?",
    .expectation = R"(
        Rows of an odd number of elements begin at any 2 bytes: neither the tensor copy engine (16 bytes) nor vector
        loads can fetch them. cuBLASLt, searched, was found to be at 94 to 104 TFLOP/s of odd sides and at 231 of even
        ones, in a launch or two on an H100 and an H200, where kernels of the generation before at 200 to 300 had been
        expected and 273 of 398 TFLOP/s are published of 10922 and 10944. cublasGemmEx takes its kernels from the same
        library by the same heuristic: as slow, so that padding is worth as much to frameworks. GPT-2's head
        (50257x8192x768, 0.63 TFLOP): 6.7 ms; padded to 8, whose rows are 16 bytes, 0.9 ms; to 64, 780 TFLOP/s, 0.81.
        Backward, k = 50257: 6.1 ms, split, against 0.87 and 0.81. 10922: 3.2 ms against 0.96. The search finds up to 10
        % more than the heuristic, padded or not. torch.mm makes the same call: 1.0. The copy of 50257 columns moves 2 x
        0.82 GB by cudaMemcpy2D at 2.3 TB/s, 0.71 ms: 4.0 of 7.5 remain; of 10922 x 8192, 0.36 GB, 0.16 ms: 2.8 of 3.3.
        1 or 2 GFLOP padded take 7.6 us, bound by launch and fill; odd, at 0.7 TFLOP/s a multiprocessor and 64 to 100
        tiles, 28 to 46 us, behind which torch's launches of 5 to 20 us hide.)",
    .predict =
        {{.arm = "cublas_gemm_ex",
          .cases = burst_of("50257x8192x768"),
          .on = "nvidia-h",
          .step_time_s = {{6e-3, 7.3e-3}}},
         {.arm = "torch_mm", .cases = burst_of("50257x8192x768"), .on = "nvidia-h", .speedup = {{0.95, 1.05}}},
         {.arm = "as_is", .cases = burst_of("50257x8192x768"), .on = "nvidia-h", .speedup = {{1, 1.1}}},
         {.arm = "to_8", .cases = burst_of("50257x8192x768"), .on = "nvidia-h", .speedup = {{6.6, 8.1}}},
         {.arm = "to_64", .cases = burst_of("50257x8192x768"), .on = "nvidia-h", .speedup = {{7.5, 9.1}}},
         {.arm = "torch_mm", .cases = burst_of("768x8192x50257"), .on = "nvidia-h", .speedup = {{0.95, 1.05}}},
         {.arm = "to_8", .cases = burst_of("768x8192x50257"), .on = "nvidia-h", .speedup = {{6.3, 7.7}}},
         {.arm = "to_64_copied", .cases = burst_of("768x8192x50257"), .on = "nvidia-h", .speedup = {{3.6, 4.4}}},
         {.arm = "torch_mm", .cases = burst_of("4095x4096x4096"), .on = "nvidia-h", .speedup = {{0.95, 1.05}}},
         {.arm = "cublas_gemm_ex_to_64", .cases = burst_of("4095x4096x4096"), .on = "nvidia-h", .speedup = {{7, 8.8}}},
         {.arm = "to_8", .cases = burst_of("4095x4096x4096"), .on = "nvidia-h", .speedup = {{7.3, 8.9}}},
         {.arm = "to_8", .cases = burst_of("4096x4096x4095"), .on = "nvidia-h", .speedup = {{6.6, 8.1}}},
         {.arm = "to_64", .cases = burst_of("10922x8192x4096"), .on = "nvidia-h", .speedup = {{3, 3.6}}},
         {.arm = "to_64_copied", .cases = burst_of("4096x8192x10922"), .on = "nvidia-h", .speedup = {{2.5, 3.1}}},
         {.arm = "to_8", .cases = burst_of("1023x1024x1024"), .on = "nvidia-h", .speedup = {{3.7, 6}}},
         {.arm = "to_8", .cases = burst_of("1024x1024x1023"), .on = "nvidia-h", .speedup = {{3.7, 6}}}},
    .found = R"(
        An H200, two runs of one launch, one where 4095 is along the sum: frameworks do see it. torch.mm and
        cublasGemmEx differ by 1.5 % at most, and the search finds 7 % more of GPT-2's head and no more than the
        heuristic elsewhere (of 4096x4096x4095 4 % less: it chooses in short windows). By the notes the fastest of 8
        candidates is cuBLASLt's algorithm 24 where a side is odd and 23 of 10922, without clusters, and 66 in clusters
        wherever sides are padded, as of all BF16 products here. That the former are kernels of before Hopper is
        inferred. Where outputs are odd, as the vocabulary, both operands' rows are whole multiples of 16 bytes and the
        result's alone are not, so that loads do not explain it as was expected; cuBLAS's guide asks 16 bytes of all
        three (Tensor Core Usage). Multiples of 8 are 16 bytes, and have 0.89 to 1.0 of what 64 has. 10922 is at 289
        TFLOP/s, not 231: 2.8 times, not 3 or more. Published were 273 and 398, 1.46 times: unpadded it is like that,
        padded it is at 817 here; why it was half there is not known. 4095 along the sum: 5.9 times, not 6.6, since
        unpadded it is at 134 TFLOP/s, not 104.)",
    .arms = {"cublas_gemm_ex", "cublas_gemm_ex_to_64", "torch_mm", "as_is", "to_8", "to_16", "to_64", "to_128",
             "to_64_copied"},
    .python = {"torch_mm"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    // Outputs x tokens x inputs: one side odd in a small and a large product; a SwiGLU of width 8/3 x 4096, up and
    // down; GPT-2's head forward and backward.
    .sweep = {{"shape",
               {"1023x1024x1024", "1024x1024x1023", "4095x4096x4096", "4096x4096x4095", "10922x8192x4096",
                "4096x8192x10922", "50257x8192x768", "768x8192x50257"}},
              {"regime", {"burst", "sustained"}}},
    .quick = {},  // an interpreter that loads torch for each case and launch
    .run = run,
};
