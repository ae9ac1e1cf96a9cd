// The first half of an MLP, gelu(W x + bias): a product and a kernel behind it, or cuBLASLt's epilogue inside of it.
// Training needs what GELU was taken of once more in the backward pass: the arm apart has it, the epilogue writes it
// where it is asked to.

#include <array>
#include <string>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/matmul_comparison.hpp"

namespace {

using gpulift::MatmulEpilogue;
using gpulift::MatmulShape;

constexpr auto kType = gpulift::MatmulType::kBf16;

struct Way {
  const char* arm;
  MatmulEpilogue epilogue;
};
constexpr std::array<Way, 3> kWays{{{"apart", MatmulEpilogue::kBiasGeluApart},
                                    {"epilogue", MatmulEpilogue::kBiasGelu},
                                    {"epilogue_kept", MatmulEpilogue::kBiasGeluKept}}};

void run(gpulift::Trial& trial) {
  const MatmulShape shape = gpulift::parse_matmul_shape(trial.word("shape"));
  const double tolerance = 2 * matmul_tolerance(kType, shape.k);  // the arm apart rounds twice
  gpulift::MatmulComparison products(trial, shape);
  std::vector<gpulift::Arm> arms;
  for (const Way& way : kWays) {
    arms.push_back(products.arm(way.arm, kType, {.epilogue = way.epilogue}));
    arms.back().tolerance = tolerance;
  }
  products.compare("relative Frobenius error of activations and what is kept, against FP64", std::move(arms),
                   tolerance);
}

gpulift::Point burst_of(const std::string& shape) { return {{"shape", shape}, {"regime", "burst"}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is it worth to add bias and GELU inside of a matrix product?",
    .expectation = R"(
        H100 SXM, bf16. GPT-2's MLP, 3072x16384x768: 77 GFLOP are 114 us of 680 TFLOP/s; the kernel behind reads and
        writes 2 x 101 MB, 67 us of 3.0 TB/s: 181 us apart. The epilogue adds some 5 us of arithmetic: 1.5x; with 101 MB
        more to write inside the product, 1.35x. Over one sequence, 3072x1024x768, all fits into the cache: 9 us and 4
        us behind, 1.4x. 16384x8192x4096: 1.1 TFLOP take 1.6 ms, the kernel 0.18 ms: 1.1x. 1024x64x256 is two launches
        of 2 to 3 us against one: 1.8x.)",
    .predict = {{.arm = "apart", .cases = burst_of("3072x16384x768"), .on = "h100", .step_time_s = {{163e-6, 199e-6}}},
                {.arm = "epilogue", .cases = burst_of("3072x16384x768"), .on = "h100", .speedup = {{1.35, 1.65}}},
                {.arm = "epilogue_kept", .cases = burst_of("3072x16384x768"), .on = "h100", .speedup = {{1.22, 1.49}}},
                {.arm = "epilogue", .cases = burst_of("3072x1024x768"), .on = "h100", .speedup = {{1.26, 1.54}}},
                {.arm = "epilogue", .cases = burst_of("16384x8192x4096"), .on = "h100", .speedup = {{0.99, 1.21}}},
                {.arm = "epilogue", .cases = burst_of("1024x64x256"), .on = "h100", .speedup = {{1.62, 1.98}}}},
    .claims = {},
    .arms = {"apart", "epilogue", "epilogue_kept"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    // Features x tokens x inputs: a tiny MLP, GPT-2's over one sequence and over 16, GPT-2 XL's, a wide one.
    .sweep = {{"shape", {"1024x64x256", "3072x1024x768", "3072x16384x768", "6400x16384x1600", "16384x8192x4096"}},
              {"regime", {"burst", "sustained"}}},
    .quick = {{{"shape", "3072x16384x768"}, {"regime", "burst"}}},
    .run = run,
};
