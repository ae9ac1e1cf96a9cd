#pragma once
// A technique's side of a case: what it says is collected, and its arms are handed on.

#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "case_run.hpp"
#include "core/harness/technique.hpp"

namespace gpulift {

/// A case that cannot run here: a result, with its remedy.
class Skipped : public std::runtime_error {
 public:
  Skipped(const std::string& reason, std::string remedy) : std::runtime_error(reason), remedy_(std::move(remedy)) {}
  const std::string& remedy() const { return remedy_; }

 private:
  std::string remedy_;
};

/// The arms disagree, a state that was asked for does not hold, or a rate is beyond physics.
class Failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a technique said up to compare(), or while its arms were made.
struct Said {
  std::map<std::string, std::string> notes = {};
  std::map<std::string, std::string> versions = {};
  nlohmann::ordered_json scratch = {};  // facts of its disk; null: no folder was asked for
};

struct PreparedArms {
  std::vector<Arm>& arms;  // of the job, if it names some; the baseline first
  const Check& check;
  const Cost& cost;
  const Said& said;  // grows while the arms are made
};
using UseArms = std::function<void(const PreparedArms&)>;

/// Runs a technique up to compare() and hands its arms and its check to `use` instead of measuring them. Throws
/// std::logic_error where the technique breaks its contract. Returns what it said.
Said run_up_to_compare(const Technique& technique, const Job& job, LaunchContext& launch, const UseArms& use);

/// A technique in Python alone: its manifest says what a C++ file would.
Technique technique_of_script(const nlohmann::ordered_json& manifest);

/// Where the case's files go, in a duet those of the job's side: see Scratch. Empty where there is none. Beside it lies
/// what a compiler leaves for later launches, of each side apart: else one would find what the other compiled.
std::filesystem::path scratch_of_case(const RunSettings& settings, const Job& job);

bool is_python(const Arm& arm);

/// Poisons the output, runs one step and returns the error that the check finds. Ahead of the step the work's
/// precondition must hold: throws Skipped where it cannot be told, Failed where it does not. `after_step` is called
/// when the step's work is done and before the check, which may need memory of its own.
double checked_error(const Work& work, const Check& check, DeviceSession* device,
                     const std::function<void()>& after_step);

/// Makes the arm once more and asks its check before any step. Throws Failed where that passes: it could not tell an
/// arm that does nothing. A check that throws without a step has told.
void prove_check(const Arm& arm, const Check& check, DeviceSession* device);

/// What the arm says of itself beyond its time, after the check and with this arm alone; empty for most. Throws
/// std::domain_error for a number that is not finite.
Metrics metrics_of(const Arm& arm, const Work& work, DeviceSession* device);

/// The seed of a case's inputs: fresh for every launch, the same for all arms and for both sides of a duet.
std::uint64_t case_seed(const Job& job, const RunSettings& settings);

}  // namespace gpulift
