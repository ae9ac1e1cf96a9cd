#pragma once
// For the tests of techniques: what every trial of a test answers alike. It times nothing.

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/harness/technique.hpp"

namespace gpulift {

/// Keeps what a technique declares and notes. Where it has no device, asking for one is an error. A skip is a
/// std::runtime_error with its reason.
class TrialOfTest : public Trial {
 public:
  /// `known` is what recall() finds beside the notes.
  TrialOfTest(Device* device, Point point, std::map<std::string, std::string> known = {}, std::uint64_t seed = 1)
      : device_(device), point_(std::move(point)), known_(std::move(known)), seed_(seed) {}

  const std::map<std::string, std::string>& notes() const { return notes_; }
  const std::map<std::string, std::string>& versions() const { return versions_; }
  const Cost& trial_cost() const { return cost_; }

  const Point& point() const override { return point_; }
  Device& device() override {
    if (device_ == nullptr) throw std::logic_error("a host technique asked for a device");
    return *device_;
  }
  bool has_device() const override { return device_ != nullptr; }
  std::uint64_t seed() const override { return seed_; }
  void cost(const Cost& per_step) override { cost_ = per_step; }
  void check(Check same_result) override { check_ = std::move(same_result); }
  std::vector<int> gpus() const override { return has_device() ? std::vector<int>{0} : std::vector<int>{}; }
  int cores() const override { return 2; }
  Scratch scratch() override { throw std::runtime_error("no folder for files in a test"); }
  void version(const std::string& library, const std::string& version) override { versions_[library] = version; }
  void note(const std::string& key, const std::string& value) override { notes_[key] = value; }
  std::optional<std::string> recall(const std::string& key) const override {
    for (const auto* kept : {&notes_, &known_}) {
      const auto found = kept->find(key);
      if (found != kept->end()) return found->second;
    }
    return std::nullopt;
  }
  [[noreturn]] void skip(const std::string& reason, const std::string&) override { throw std::runtime_error(reason); }

 protected:
  const Check& check_of_case() const { return check_; }

 private:
  Device* device_;
  Point point_;
  std::map<std::string, std::string> known_;
  std::uint64_t seed_;
  std::map<std::string, std::string> notes_;
  std::map<std::string, std::string> versions_;
  Cost cost_;
  Check check_;
};

}  // namespace gpulift
