#pragma once
// For the tests of techniques that need no device: a trial that makes each arm alone, in this process, lets it take
// steps and keeps its errors. It times nothing.

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/harness/technique.hpp"

namespace gpulift {

class HostCheckingTrial final : public Trial {
 public:
  struct ArmResult {
    double poisoned_error = 0;  // before the first step: NaN or above the tolerance
    double error = 0;           // after one step
    double later_error = 0;     // after two more without a poisoning between
    double tolerance = 0;
    Arm arm;
    std::string not_made;  // why it could not be made; empty: it was
  };

  explicit HostCheckingTrial(Point point, std::uint64_t seed = 1) : point_(std::move(point)), seed_(seed) {}

  const std::vector<ArmResult>& results() const { return results_; }
  const std::map<std::string, std::string>& notes() const { return notes_; }
  const std::map<std::string, std::string>& versions() const { return versions_; }
  const Cost& trial_cost() const { return cost_; }

  const Point& point() const override { return point_; }
  Device& device() override { throw std::logic_error("a host technique asked for a device"); }
  bool has_device() const override { return false; }
  std::uint64_t seed() const override { return seed_; }
  void cost(const Cost& per_step) override { cost_ = per_step; }
  void check(Check same_result) override { check_ = std::move(same_result); }
  std::vector<int> gpus() const override { return {}; }
  int cores() const override { return 2; }
  Scratch scratch() override { skip("no folder for files in a test", ""); }
  void version(const std::string& library, const std::string& version) override { versions_[library] = version; }
  void note(const std::string& key, const std::string& value) override { notes_[key] = value; }
  std::optional<std::string> recall(const std::string& key) const override {
    const auto found = notes_.find(key);
    return found == notes_.end() ? std::nullopt : std::optional(found->second);
  }
  void compare(std::vector<Arm> arms) override {
    for (const Arm& arm : arms) results_.push_back(try_arm(arm));
  }
  [[noreturn]] void skip(const std::string& reason, const std::string&) override { throw std::runtime_error(reason); }

 private:
  ArmResult try_arm(const Arm& arm) {
    ArmResult result;
    result.arm = arm;
    result.tolerance = arm.tolerance.value_or(check_.tolerance);
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
    if (check_.poison) check_.poison(nullptr);
    result.poisoned_error = check_.error(nullptr);
    const auto take_step = [&work] {
      work->do_before();
      work->step()(nullptr);
      work->do_rest();
    };
    take_step();
    result.error = check_.error(nullptr);
    take_step();
    take_step();
    result.later_error = check_.error(nullptr);
    return result;
  }

  Point point_;
  std::uint64_t seed_;
  std::map<std::string, std::string> notes_;
  std::map<std::string, std::string> versions_;
  std::vector<ArmResult> results_;
  Cost cost_;
  Check check_;
};

}  // namespace gpulift
