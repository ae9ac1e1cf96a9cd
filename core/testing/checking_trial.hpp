#pragma once
// For the tests of techniques: a trial that makes each arm in C++ alone, lets it take one step and keeps its error. It
// times nothing.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/handles.hpp"
#include "core/testing/trial_of_test.hpp"

namespace gpulift {

class CheckingTrial final : public TrialOfTest {
 public:
  struct ArmResult {
    double error = 0;
    double tolerance = 0;
    Cost cost;
    Metrics metrics;
    std::string unavailable;
    std::size_t peak_device_bytes = 0;
  };

  /// `known` is what recall() finds beside the notes.
  CheckingTrial(Device& device, Point point, std::map<std::string, std::string> known = {})
      : TrialOfTest(&device, std::move(point), std::move(known)) {}

  /// Runs the technique's case, in which all arms that it declares are compared.
  CheckingTrial(const Technique& technique, Device& device, Point point, std::map<std::string, std::string> known = {})
      : CheckingTrial(device, std::move(point), std::move(known)) {
    technique.run(*this);
    EXPECT_EQ(results_.size(), technique.arms.size());
  }

  const std::map<std::string, ArmResult>& results() const { return results_; }

  void compare(std::vector<Arm> arms) override {
    for (const Arm& arm : arms) {
      const bool of_script = arm.worker && arm.worker->python;  // which runs in an interpreter, and has a test there
      const std::string why = of_script ? "a Python arm" : arm.unavailable;
      results_[arm.name] = why.empty() ? try_arm(arm) : unavailable(why);
    }
  }

 private:
  ArmResult try_arm(const Arm& arm) {
    const UniqueStream stream = make_stream();
    device().memory().reset_peak();
    const std::size_t before_bytes = device().memory().live_bytes();
    const Work work = arm.make();
    const Step& step = work.step();
    if (check_of_case().poison) check_of_case().poison(stream.get());
    work.do_before();
    step(stream.get());
    gpulift::check(cudaStreamSynchronize(stream.get()));
    work.do_rest();
    ArmResult result;
    result.peak_device_bytes = device().memory().peak_bytes() - before_bytes;
    result.error = check_of_case().error(stream.get());
    result.tolerance = arm.tolerance.value_or(check_of_case().tolerance);
    result.cost = arm.cost.value_or(trial_cost());
    if (arm.metrics) result.metrics = arm.metrics(step, stream.get());
    gpulift::check(cudaStreamSynchronize(stream.get()));
    return result;
  }

  static ArmResult unavailable(const std::string& why) {
    ArmResult result;
    result.unavailable = why;
    return result;
  }

  std::map<std::string, ArmResult> results_;
};

}  // namespace gpulift
