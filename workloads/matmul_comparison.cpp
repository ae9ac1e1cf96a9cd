#include "workloads/matmul_comparison.hpp"

#include <utility>

#include "core/cuda/device.hpp"
#include "core/cuda/error.hpp"

namespace gpulift {

Arm MatmulComparison::arm(const std::string& name, MatmulType type, const MatmulOptions& options,
                          const MatmulSearch& search) {
  Arm arm{.name = name, .make = {}};
  const int architecture = trial_.device().architecture();
  arm.unavailable = options.scaling == Fp8Scaling::kGiven ? why_matmul_unsupported(type, architecture)
                                                          : why_scaling_unsupported(options.scaling, architecture);
  if (!arm.unavailable.empty()) return arm;
  arm.cost = Cost{.flops = shape_.flops(), .roof = "gemm/" + matmul_type_name(type)};
  arm.tolerance = matmul_tolerance(type, shape_.k);
  const auto make = [this, type, options] {
    return std::make_shared<Matmul>(trial_.device(), type, shape_, trial_.seed(), options);
  };
  try {
    const MatmulPlan plan = plan_of_case(trial_, name, [&] { return make()->search(search).plan; });
    arm.make = [this, make, plan]() -> Step {
      const std::shared_ptr<Matmul> matmul = make();
      matmul->use(plan);
      check_by(matmul);
      return [matmul](StreamHandle stream) { matmul->enqueue(stream); };
    };
  } catch (const NotSupported& reason) {
    arm.unavailable = reason.what();
  }
  return arm;
}

void MatmulComparison::compare(const std::string& meaning, std::vector<Arm> arms, double tolerance) {
  trial_.check({.meaning = meaning,
                .poison = [this](StreamHandle stream) { poison_(stream); },
                .error = [this](StreamHandle stream) { return error_(stream); },
                .tolerance = tolerance});
  trial_.compare(std::move(arms));
}

}  // namespace gpulift
