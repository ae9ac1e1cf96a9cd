// The products of a mixture of experts: many small ones, whose sizes the tokens decide. A call for each; one strided
// batch, for which all are padded to the fullest expert; one grouped call. The wall clock's pace counts too, since a
// loop's launches are its cost.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/device.hpp"
#include "core/cuda/error.hpp"
#include "core/harness/technique.hpp"
#include "workloads/expert_matmul.hpp"

namespace {

using gpulift::ExpertCalls;
using gpulift::ExpertMatmul;
using gpulift::Experts;
using gpulift::MatmulPlan;
using gpulift::MatmulShape;

constexpr auto kType = gpulift::MatmulType::kBf16;

struct Way {
  const char* arm;
  ExpertCalls calls;
};
constexpr std::array<Way, 3> kWays{
    {{"loop", ExpertCalls::kLoop}, {"batched", ExpertCalls::kBatched}, {"grouped", ExpertCalls::kGrouped}}};

gpulift::Arm make_arm(gpulift::Trial& trial, const Way& way, const Experts& experts,
                      std::weak_ptr<ExpertMatmul>& current) {
  gpulift::Arm arm{.name = way.arm, .make = {}, .clock = gpulift::Clock::kUnheld};
  arm.unavailable = why_matmul_unsupported(kType, trial.device().architecture());
  if (!arm.unavailable.empty()) return arm;
  const auto make = [&trial, &way, experts] {
    return std::make_shared<ExpertMatmul>(trial.device(), way.calls, experts, trial.seed());
  };
  std::vector<MatmulPlan> plans;
  try {
    for (const MatmulShape& shape : searched_shapes(way.calls, experts)) {
      plans.push_back(gpulift::plan_of_case(trial, arm.name + "/" + to_string(shape),
                                            [&] { return make()->search(shape, {.budget_s = 0.5}); }));
    }
  } catch (const gpulift::NotSupported& reason) {
    arm.unavailable = reason.what();
  }
  arm.make = [&current, make, plans]() -> gpulift::Step {
    const std::shared_ptr<ExpertMatmul> matmul = make();
    for (const MatmulPlan& plan : plans) matmul->use(plan);
    current = matmul;
    return [matmul](gpulift::StreamHandle stream) { matmul->enqueue(stream); };
  };
  return arm;
}

void run(gpulift::Trial& trial) {
  // Experts x features x inputs.
  const MatmulShape sizes = gpulift::parse_matmul_shape(trial.word("experts"));
  const bool evenly = trial.word("dealt") == "evenly";
  const Experts experts{sizes.n, sizes.k, gpulift::deal_tokens(sizes.m, trial.number("tokens"), evenly)};
  std::weak_ptr<ExpertMatmul> current;  // of the arm that was made last
  std::vector<gpulift::Arm> arms;
  for (const Way& way : kWays) arms.push_back(make_arm(trial, way, experts, current));
  trial.cost({.flops = experts.flops(), .roof = "gemm/bf16"});
  trial.note("algorithm/grouped", "cuBLAS's own choice: the call takes none");
  trial.check({.meaning = "relative Frobenius error of each expert's results against FP64",
               .poison = [&](gpulift::StreamHandle stream) { current.lock()->poison(stream); },
               .error = [&](gpulift::StreamHandle stream) { return current.lock()->error(stream); },
               .tolerance = matmul_tolerance(kType, experts.inputs)});
  trial.compare(std::move(arms));
}

gpulift::Point burst_of(const std::string& experts, std::int64_t tokens, const std::string& dealt) {
  return {{"experts", experts}, {"tokens", tokens}, {"dealt", dealt}, {"regime", "burst"}};
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Which call multiplies a mixture of experts fastest: one for each, a padded batch, or a grouped one?",
    .expectation = R"(
        H100 SXM. 64 experts of 1408x2048 have 369 MB of weights, 123 us of 3.0 TB/s. 1024 tokens, 16 for each: 64 calls
        of 6 MB keep 132 multiprocessors half busy, 5 us each: 320 us; a batch fills them: 140 us, 2.3x; grouped the
        same or a little more, 2x. 16384 tokens, 94 GFLOP, evenly: 140 us of work, 64 calls of 11 tiles of 128 x 256
        each: 400 us; batched and grouped 190 us: 2x. Half of the tokens for an eighth: the batch multiplies 64 x 1024
        tokens, 4x what was asked: 560 us, 0.8x; grouped 220 us: 2x. 8 experts of 14336x4096 have 940 MB, 313 us; 16384
        tokens evenly are 1.9 TFLOP, 2.9 ms either way: within 5 %; unevenly the batch multiplies 4x as much: 0.25x, and
        grouped, without a search, 0.9x to 1.0x.)",
    .predict =
        {{.arm = "loop",
          .cases = burst_of("64x1408x2048", 1024, "evenly"),
          .on = "h100",
          .step_time_s = {{288e-6, 352e-6}}},
         {.arm = "batched", .cases = burst_of("64x1408x2048", 1024, "evenly"), .on = "h100", .speedup = {{2.07, 2.53}}},
         {.arm = "grouped", .cases = burst_of("64x1408x2048", 1024, "evenly"), .on = "h100", .speedup = {{1.8, 2.2}}},
         {.arm = "loop",
          .cases = burst_of("64x1408x2048", 16384, "evenly"),
          .on = "h100",
          .step_time_s = {{360e-6, 440e-6}}},
         {.arm = "batched", .cases = burst_of("64x1408x2048", 16384, "evenly"), .on = "h100", .speedup = {{1.8, 2.2}}},
         {.arm = "grouped", .cases = burst_of("64x1408x2048", 16384, "evenly"), .on = "h100", .speedup = {{1.8, 2.2}}},
         {.arm = "batched",
          .cases = burst_of("64x1408x2048", 16384, "half_to_an_eighth"),
          .on = "h100",
          .speedup = {{0.72, 0.88}}},
         {.arm = "grouped",
          .cases = burst_of("64x1408x2048", 16384, "half_to_an_eighth"),
          .on = "h100",
          .speedup = {{1.8, 2.2}}},
         {.arm = "loop",
          .cases = burst_of("8x14336x4096", 16384, "evenly"),
          .on = "h100",
          .step_time_s = {{2.61e-3, 3.19e-3}}},
         {.arm = "batched",
          .cases = burst_of("8x14336x4096", 16384, "evenly"),
          .on = "h100",
          .speedup = {{0.95, 1.05}}},
         {.arm = "grouped",
          .cases = burst_of("8x14336x4096", 16384, "evenly"),
          .on = "h100",
          .speedup = {{0.95, 1.05}}},
         {.arm = "batched",
          .cases = burst_of("8x14336x4096", 16384, "half_to_an_eighth"),
          .on = "h100",
          .speedup = {{0.225, 0.275}}},
         {.arm = "grouped",
          .cases = burst_of("8x14336x4096", 16384, "half_to_an_eighth"),
          .on = "h100",
          .speedup = {{0.9, 1}}}},
    .claims = {},
    .arms = {"loop", "batched", "grouped"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"experts", {"64x1408x2048", "8x14336x4096"}},
              {"tokens", {std::int64_t{1024}, std::int64_t{16384}}},
              {"dealt", {"evenly", "half_to_an_eighth"}},
              {"regime", {"burst", "sustained"}}},
    .quick = {{{"experts", "64x1408x2048"}, {"tokens", std::int64_t{16384}}, {"dealt", "evenly"}, {"regime", "burst"}}},
    .run = run,
};
