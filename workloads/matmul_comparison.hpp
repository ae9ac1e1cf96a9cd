#pragma once
// Products of one shape as the arms of a case: each has operands of its own and the plan that was the fastest for it.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {

/// Lives until Trial::compare() has returned.
class MatmulComparison {
 public:
  MatmulComparison(Trial& trial, const MatmulShape& shape) : trial_(trial), shape_(shape) {}
  MatmulComparison(const MatmulComparison&) = delete;
  MatmulComparison& operator=(const MatmulComparison&) = delete;

  /// By cuBLASLt, whose candidates are searched once per run. Its cost is that of the shape under the roof of its type,
  /// its tolerance that of its type; where device or library cannot, it says so.
  Arm arm(const std::string& name, MatmulType type, const MatmulOptions& options = {},
          const MatmulSearch& search = {.budget_s = 0.5});

  /// Enqueues a product by other means, of these operands into this result.
  using Multiply = std::function<void(const Matmul::Buffers&, StreamHandle)>;
  /// By what `make_multiply` makes, which is given the next buffers in each step.
  Arm arm_by(const std::string& name, MatmulType type, const MatmulOptions& options,
             const std::function<Multiply()>& make_multiply);

  /// Checks by `product`, which is what an arm of another kind just made: it has poison() and error(), as Matmul has.
  template <typename Product>
  void check_by(const std::shared_ptr<Product>& product) {
    poison_ = [made = std::weak_ptr(product)](StreamHandle stream) { made.lock()->poison(stream); };
    error_ = [made = std::weak_ptr(product)](StreamHandle stream) { return made.lock()->error(stream); };
  }

  /// The baseline first. `meaning` says what their errors are; the tolerance is of arms that have none of their own.
  void compare(const std::string& meaning, std::vector<Arm> arms, double tolerance = 0);

 private:
  /// With the cost and the tolerance of the type, or the reason why it cannot be multiplied.
  Arm arm_of(const std::string& name, MatmulType type, Fp8Scaling scaling);
  std::shared_ptr<Matmul> make(MatmulType type, const MatmulOptions& options);

  Trial& trial_;
  MatmulShape shape_;
  // Of the arm that was made last, and none of it is held.
  std::function<void(StreamHandle)> poison_;
  std::function<double(StreamHandle)> error_;
};

}  // namespace gpulift
