#include "workloads/matmul_comparison.hpp"

#include <utility>

#include "core/cuda/device.hpp"
#include "core/cuda/error.hpp"

namespace gpulift {

Arm MatmulComparison::arm(const std::string& name, MatmulType type, const MatmulOptions& options,
                          const MatmulSearch& search) {
  return planned_arm(name, type, options, [search](Matmul& matmul) { return matmul.search(search).plan; });
}

Arm MatmulComparison::arm_like(const std::string& other, const std::string& name, MatmulType type,
                               const MatmulOptions& options) {
  return planned_arm(name, type, options, [this, other](const Matmul& matmul) {
    const auto plan = plans_.find(other);
    if (plan == plans_.end()) throw NotSupported(other + " has no algorithm here");
    return matmul.counterpart(plan->second);
  });
}

Arm MatmulComparison::planned_arm(const std::string& name, MatmulType type, const MatmulOptions& options,
                                  const std::function<MatmulPlan(Matmul&)>& find) {
  Arm arm = arm_of(name, type, options.scaling);
  if (!arm.unavailable.empty()) return arm;
  try {
    const MatmulPlan plan = plan_of_case(trial_, name, [&] { return find(*make(type, options)); });
    plans_[name] = plan;
    arm.make = [this, type, options, plan]() -> Step {
      const std::shared_ptr<Matmul> matmul = make(type, options);
      matmul->use(plan);
      check_by(matmul);
      return [matmul](StreamHandle stream) { matmul->enqueue(stream); };
    };
  } catch (const NotSupported& reason) {
    arm.unavailable = reason.what();
  }
  return arm;
}

Arm MatmulComparison::arm_by(const std::string& name, MatmulType type, const MatmulOptions& options,
                             const std::function<Multiply()>& make_multiply) {
  Arm arm = arm_of(name, type, options.scaling);
  arm.make = [this, make_multiply, type, options]() -> Step {
    const std::shared_ptr<Matmul> matmul = make(type, options);
    check_by(matmul);
    return [matmul, multiply = make_multiply()](StreamHandle stream) { multiply(matmul->next(), stream); };
  };
  return arm;
}

Arm MatmulComparison::arm_of(const std::string& name, MatmulType type, Fp8Scaling scaling) {
  const int architecture = trial_.device().architecture();
  return {.name = name,
          .make = {},
          .cost = Cost{.flops = shape_.flops(), .roof = "gemm/" + matmul_type_name(type)},
          .tolerance = matmul_tolerance(type, shape_.k),
          .unavailable = scaling == Fp8Scaling::kGiven ? why_matmul_unsupported(type, architecture)
                                                       : why_scaling_unsupported(scaling, architecture)};
}

std::shared_ptr<Matmul> MatmulComparison::make(MatmulType type, const MatmulOptions& options) {
  return std::make_shared<Matmul>(trial_.device(), type, shape_, trial_.seed(), options);
}

void MatmulComparison::compare(const std::string& meaning, std::vector<Arm> arms, double tolerance) {
  trial_.check({.meaning = meaning,
                .poison = [this](StreamHandle stream) { poison_(stream); },
                .error = [this](StreamHandle stream) { return error_(stream); },
                .tolerance = tolerance});
  trial_.compare(std::move(arms));
}

}  // namespace gpulift
