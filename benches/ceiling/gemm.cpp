// The highest rate of matrix products that this device and its library reach, per number format: the roof for all
// techniques that multiply matrices. Shape and algorithm are searched once per run and kept in the record. Searches
// find other shapes on cards of one model, whose rates differ by up to 3.9 %: so cards are held against each other by a
// fixed product, one shape by the algorithm that cuBLASLt's heuristic puts first, which hangs on its version and the
// model of GPU alone.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/device.hpp"
#include "core/cuda/error.hpp"
#include "core/harness/technique.hpp"
#include "workloads/best_matmul.hpp"
#include "workloads/matmul.hpp"

namespace {

using gpulift::Matmul;
using gpulift::MatmulPlan;
using gpulift::MatmulShape;
using gpulift::MatmulType;

constexpr std::array kTypes{MatmulType::kFp32, MatmulType::kTf32, MatmulType::kFp16,
                            MatmulType::kBf16, MatmulType::kFp8,  MatmulType::kInt8};

/// Shapes whose tiles of 128 x 256 fill all multiprocessors for a whole number of waves (rows x columns tiles with rows
/// * columns = multiprocessors, times 1, 2, 4 and 8), squares, and a shape that public finders report. The likeliest
/// come first: a search on a slow host does not reach the last (seen: FP32 at 0.98 of what the deep shapes give).
std::vector<MatmulShape> candidate_shapes(std::int64_t multiprocessors) {
  std::int64_t columns = 1;
  for (std::int64_t divisor = 1; divisor * divisor <= multiprocessors; ++divisor) {
    if (multiprocessors % divisor == 0) columns = divisor;
  }
  const std::int64_t m = 128 * (multiprocessors / columns);
  const std::int64_t n = 256 * columns;
  std::vector<MatmulShape> shapes;
  for (const std::int64_t k : {20480, 8192}) {
    for (const auto& [rows, times] : {std::pair{1, 1}, {2, 1}, {2, 2}, {4, 2}}) {
      shapes.push_back({rows * m, times * n, k});
    }
  }
  shapes.insert(shapes.end(), {{4096, 4096, 4096}, {2048, 2048, 13312}, {8192, 8192, 8192}});
  return shapes;
}

constexpr MatmulShape kFixed{8192, 8192, 8192};  // 2048 tiles of 128 x 256

/// The plan of an earlier launch; else the library's own of the fixed shape, or a search, which rests before its last
/// windows where the boost clock counts.
MatmulPlan plan_for(gpulift::Trial& trial, MatmulType type) {
  const std::string name = matmul_type_name(type);
  const MatmulPlan plan = gpulift::plan_of_case(trial, name, [&] {
    if (trial.word("product") == "fixed") {
      const Matmul::Search first{.budget_s = 0, .candidates = 1};
      return Matmul(trial.device(), type, kFixed, trial.seed()).search(first).plan;
    }
    const Matmul::Search search{.budget_s = 1, .rest_s = trial.word("regime") == "burst" ? 0.01 : 0.0};
    const auto shapes = candidate_shapes(trial.device().multiprocessors());
    return gpulift::find_best_matmul(trial.device(), type, shapes, trial.seed(), search);
  });
  trial.note("shape/" + name, to_string(plan.shape));
  return plan;
}

gpulift::Arm make_arm(gpulift::Trial& trial, MatmulType type, std::weak_ptr<Matmul>& current) {
  gpulift::Arm arm{.name = matmul_type_name(type), .make = {}};
  arm.unavailable = why_matmul_unsupported(type, trial.device().architecture());
  if (!arm.unavailable.empty()) return arm;
  try {
    const MatmulPlan plan = plan_for(trial, type);
    arm.cost = gpulift::Cost{.flops = plan.shape.flops(), .roof = "gemm/" + arm.name};
    arm.tolerance = matmul_tolerance(type, plan.shape.k);
    arm.make = [&trial, &current, type, plan]() -> gpulift::Step {
      auto matmul = std::make_shared<Matmul>(trial.device(), type, plan.shape, trial.seed());
      matmul->use(plan);
      current = matmul;
      return [matmul](gpulift::StreamHandle stream) { matmul->enqueue(stream); };
    };
  } catch (const gpulift::NotSupported& reason) {
    arm.unavailable = reason.what();
  }
  return arm;
}

void run(gpulift::Trial& trial) {
  std::weak_ptr<Matmul> current;  // of the arm that was made last
  std::vector<gpulift::Arm> arms;
  for (const MatmulType type : kTypes) arms.push_back(make_arm(trial, type, current));
  trial.check({.meaning = "relative Frobenius error against FP64; int8 exact",
               .poison = [&](gpulift::StreamHandle stream) { current.lock()->poison(stream); },
               .error = [&](gpulift::StreamHandle stream) { return current.lock()->error(stream); }});
  trial.compare(std::move(arms));
}

gpulift::Point burst_of(const std::string& product) { return {{"regime", "burst"}, {"product", product}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How many operations per second can matrix products reach, per number format?",
    .expectation = R"(
        H200 at 1.98 GHz: 132 multiprocessors x 4096 bf16 operations per clock = 1070 TFLOP/s. At most about 80 % of it
        is reached before the power cap acts: 830 to 850 TFLOP/s burst for bf16 and fp16. Sustained at 700 W the clock
        falls to about 1.6 GHz: 735 to 755. TF32 is half of bf16, 400 to 450. FP8 is twice the peak but not twice the
        rate: 1450 to 1550 burst, 1300 to 1400 sustained; int8 at most the same. FP32 has 132 x 256 operations per clock
        = 67 TFLOP/s, of which 50 to 55 are reached. The fixed product, 8192 cubed, 1.1 TFLOP, leaves the last of 15.5
        waves half empty and is not searched: 0.9 to 0.97 of these rates, BF16 1.35 to 1.55 ms, TF32 2.4 to 3.0, FP8
        0.72 to 0.90. Between cards it differs less: H200s whose searches found one shape were 1.0 % apart in FP8 and
        0.5 % in TF32, all of them 1.8 and 1.1.)",
    .predict = {{.arm = "bf16", .cases = burst_of("fixed"), .on = "h200", .step_time_s = {{1.35e-3, 1.55e-3}}},
                {.arm = "tf32", .cases = burst_of("fixed"), .on = "h200", .step_time_s = {{2.4e-3, 3.0e-3}}},
                {.arm = "fp8", .cases = burst_of("fixed"), .on = "h200", .step_time_s = {{0.72e-3, 0.9e-3}}}},
    .ceiling = true,
    .arms = {"fp32", "tf32", "fp16", "bf16", "fp8", "int8"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"regime", {"burst", "sustained"}}, {"product", {"searched", "fixed"}}},
    .quick = {burst_of("searched"), burst_of("fixed")},
    .run = run,
};
