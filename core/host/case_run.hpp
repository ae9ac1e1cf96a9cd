#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/harness/telemetry.hpp"
#include "device_session.hpp"
#include "job.hpp"

namespace gpulift {

/// What all cases of one launch share.
struct LaunchContext {
  RunSettings settings;
  DeviceSession* device = nullptr;  // null: none, for the reason below
  NoDevice no_device;
  Telemetry* telemetry = nullptr;  // null: none, for the reason below
  std::string telemetry_missing;
  nlohmann::ordered_json context;  // the record's
};

/// A case that cannot run here: a result, with its remedy.
class Skipped : public std::runtime_error {
 public:
  Skipped(const std::string& reason, std::string remedy) : std::runtime_error(reason), remedy_(std::move(remedy)) {}
  const std::string& remedy() const { return remedy_; }

 private:
  std::string remedy_;
};

/// The arms disagree, or a rate is beyond physics.
class Failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Runs one job and returns its record. Never throws for what a technique does: that is the record's outcome.
nlohmann::ordered_json run_case(const Job& job, LaunchContext& launch);

/// Runs a technique up to compare() and hands its arms and its check to `use` instead of measuring them.
struct PreparedArms {
  std::vector<Arm>& arms;
  const Check& check;
  const Cost& cost;
  const nlohmann::ordered_json& notes;  // what the technique noted so far
};
void run_up_to_compare(const Technique& technique, const Job& job, LaunchContext& launch,
                       const std::function<void(const PreparedArms&)>& use);

/// Poisons the output, runs one step and returns the error that the check finds. `after_step` is called when the step's
/// work is done and before the check, which may need memory of its own.
double checked_error(const Step& step, const Check& check, DeviceSession* device,
                     const std::function<void()>& after_step);

/// What the arm says of itself beyond its time, after the check and with this arm alone; empty for most. Throws
/// std::domain_error for a number that is not finite.
nlohmann::ordered_json metrics_of(const Arm& arm, const Step& step, DeviceSession* device);

/// The seed of a case's inputs: fresh for every launch, the same for all arms and for both sides of a duet.
std::uint64_t case_seed(const Job& job, const RunSettings& settings);

}  // namespace gpulift
