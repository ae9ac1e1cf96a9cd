#pragma once
// For the tests of techniques: a trial that makes each arm alone, lets it take one step and keeps its error. It times
// nothing.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"

namespace gpulift {

class CheckingTrial final : public Trial {
 public:
  struct ArmResult {
    double error = 0;
    double tolerance = 0;
    Cost cost;
    Metrics metrics;
    std::string unavailable;
    std::size_t peak_device_bytes = 0;
  };

  /// `known` is what recall() finds.
  CheckingTrial(Device& device, Point point, std::map<std::string, std::string> known = {})
      : device_(device), point_(std::move(point)), known_(std::move(known)) {}

  const std::map<std::string, ArmResult>& results() const { return results_; }
  const std::map<std::string, std::string>& notes() const { return notes_; }
  const std::map<std::string, std::string>& versions() const { return versions_; }

  const Point& point() const override { return point_; }
  Device& device() override { return device_; }
  bool has_device() const override { return true; }
  std::uint64_t seed() const override { return 1; }
  void cost(const Cost& per_step) override { cost_ = per_step; }
  void check(Check same_result) override { check_ = std::move(same_result); }
  std::vector<int> gpus() const override { return {0}; }
  int cores() const override { return 2; }
  Scratch scratch() override { skip("no folder for files in a test", ""); }
  void version(const std::string& library, const std::string& version) override { versions_[library] = version; }
  void note(const std::string& key, const std::string& value) override { notes_[key] = value; }
  std::optional<std::string> recall(const std::string& key) const override {
    const auto found = known_.find(key);
    return found == known_.end() ? std::nullopt : std::optional(found->second);
  }
  void compare(std::vector<Arm> arms) override {
    for (const Arm& arm : arms) results_[arm.name] = arm.unavailable.empty() ? try_arm(arm) : unavailable(arm);
  }
  [[noreturn]] void skip(const std::string& reason, const std::string&) override { throw std::runtime_error(reason); }

 private:
  ArmResult try_arm(const Arm& arm) {
    const UniqueStream stream = make_stream();
    device_.memory().reset_peak();
    const std::size_t before_bytes = device_.memory().live_bytes();
    const Work work = arm.make();
    const Step& step = work.step();
    if (check_.poison) check_.poison(stream.get());
    work.do_before();
    step(stream.get());
    gpulift::check(cudaStreamSynchronize(stream.get()));
    work.do_rest();
    ArmResult result;
    result.peak_device_bytes = device_.memory().peak_bytes() - before_bytes;
    result.error = check_.error(stream.get());
    result.tolerance = arm.tolerance.value_or(check_.tolerance);
    result.cost = arm.cost.value_or(cost_);
    if (arm.metrics) result.metrics = arm.metrics(step, stream.get());
    gpulift::check(cudaStreamSynchronize(stream.get()));
    return result;
  }

  static ArmResult unavailable(const Arm& arm) {
    ArmResult result;
    result.unavailable = arm.unavailable;
    return result;
  }

  Device& device_;
  Point point_;
  std::map<std::string, std::string> known_;
  std::map<std::string, std::string> notes_;
  std::map<std::string, std::string> versions_;
  std::map<std::string, ArmResult> results_;
  Cost cost_;
  Check check_;
};

}  // namespace gpulift
