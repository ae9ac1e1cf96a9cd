#pragma once
// For the tests of techniques that need no device: a trial that makes each arm alone, in this process, lets it take
// steps and keeps its errors. It times nothing.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/testing/trial_of_test.hpp"

namespace gpulift {

class HostCheckingTrial final : public TrialOfTest {
 public:
  /// Of each arm. A check of losses takes twenty steps more each time.
  enum class Steps { kOne, kThree };

  struct ArmResult {
    double poisoned_error = 0;  // before the first step: NaN or above the tolerance
    double error = 0;           // after one step
    /// After two more, where it takes three, without a poisoning between.
    double later_error = std::numeric_limits<double>::quiet_NaN();
    double tolerance = 0;
    Arm arm;
    std::string not_made;  // why it could not be made; empty: it was
  };

  explicit HostCheckingTrial(Point point, std::uint64_t seed = 1) : TrialOfTest(nullptr, std::move(point), {}, seed) {}

  /// Runs the technique's case, in which all arms that it declares are compared.
  HostCheckingTrial(const Technique& technique, Point point, Steps steps = Steps::kOne)
      : HostCheckingTrial(std::move(point)) {
    steps_ = steps;
    technique.run(*this);
    EXPECT_EQ(results_.size(), technique.arms.size());
  }

  const std::vector<ArmResult>& results() const { return results_; }

  void compare(std::vector<Arm> arms) override {
    for (const Arm& arm : arms) results_.push_back(try_arm(arm));
  }

 private:
  ArmResult try_arm(const Arm& arm) {
    ArmResult result;
    result.arm = arm;
    result.tolerance = arm.tolerance.value_or(check_of_case().tolerance);
    if (arm.worker && arm.worker->python) {
      result.not_made = "a Python arm";
      return result;
    }
    if (!arm.make) {
      result.not_made = arm.unavailable;
      return result;
    }
    std::optional<Work> work;
    try {
      work = arm.make();
    } catch (const std::runtime_error& error) {
      result.not_made = error.what();
      return result;
    }
    if (check_of_case().poison) check_of_case().poison(nullptr);
    result.poisoned_error = check_of_case().error(nullptr);
    const auto take_step = [&work] {
      work->do_before();
      work->step()(nullptr);
      work->do_rest();
    };
    take_step();
    result.error = check_of_case().error(nullptr);
    if (steps_ == Steps::kOne) return result;
    take_step();
    take_step();
    result.later_error = check_of_case().error(nullptr);
    return result;
  }

  Steps steps_ = Steps::kOne;
  std::vector<ArmResult> results_;
};

}  // namespace gpulift
