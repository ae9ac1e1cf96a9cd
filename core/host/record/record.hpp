#pragma once
// What becomes one line of results: see results/schema/. The record of a case while it is measured; JSON only at its
// end.

#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda/error.hpp"
#include "core/harness/json.hpp"
#include "core/harness/sampler.hpp"
#include "core/harness/technique.hpp"
#include "job.hpp"

namespace gpulift {

enum class Outcome { kOk, kSkipped, kFailed, kError };

/// What came of a case or an arm, and why.
struct Result {
  Outcome outcome = Outcome::kOk;
  std::string reason = {};  // of all but kOk
  std::string remedy = {};  // what would help, where something would

  bool ok() const { return outcome == Outcome::kOk; }
};

/// A case or an arm that asks for more memory than there is, is skipped.
Result out_of_memory(const OutOfMemory& exhausted);

/// What an arm's precondition saw, over all its windows.
struct PreconditionSeen {
  std::string name;
  double most;
  double worst;
};

struct ArmRecord {
  std::string name;
  bool baseline = false;
  Result result = {};
  std::optional<Cost> cost = {};  // none of an arm that cannot run here
  int ranks = 1;
  std::map<std::string, std::string> environment = {};
  bool checked = true;  // false: nothing says that its result is the same
  std::optional<double> check_error = {};
  double check_tolerance = 0;
  std::optional<std::size_t> peak_device_bytes = {};
  std::optional<std::size_t> peak_pinned_bytes = {};
  std::optional<std::size_t> peak_host_bytes = {};
  Metrics metrics = {};
  std::optional<PreconditionSeen> precondition = {};
  Clock clock = Clock::kHost;  // that judges its windows
  std::optional<ArmSamples> samples = {};
  std::vector<std::optional<double>> energy_j = {};  // of each window; empty where none is known

  /// Seconds of a step in each window, by the clock that judges it. Needs samples.
  std::vector<double> step_s() const;
};

struct CaseRecord {
  std::time_t started_at = std::time(nullptr);  // it is made when its case begins
  Result result = {.outcome = Outcome::kError};
  std::string check_meaning = {};  // empty: no arm was checked
  double check_tolerance = 0;
  std::vector<ArmRecord> arms = {};

  /// How the windows were taken. Blocks and allocation name arms by their place in `arms`.
  struct Sampling {
    std::uint64_t seed = 0;
    std::vector<std::vector<std::size_t>> blocks = {};
    std::vector<std::size_t> visits = {};  // empty where blocks followed each other
    int dropped_visits = 0;
    std::vector<std::size_t> allocation = {};
    StopReason stop_reason = StopReason::kBudget;
    int planned_blocks = 0;
    double rest_s = 0;
    double asked_half_width = 0;
    std::optional<double> reached_half_width = {};
    int discarded_blocks = 0;
    int restarts = 0;
  };
  std::optional<Sampling> sampling = {};

  std::map<std::string, std::string> notes = {};
  std::map<std::string, std::string> versions = {};
  nlohmann::ordered_json scratch = {};    // facts of the disk; null where no folder was asked for
  nlohmann::ordered_json telemetry = {};  // of the first GPU; null: none, for the reason below
  std::vector<nlohmann::ordered_json> telemetry_others = {};
  std::string telemetry_missing = {};
  nlohmann::ordered_json host_load = {};      // null where the time was too short
  std::map<std::string, double> time_s = {};  // where the time of the case went, by part
  std::size_t gpus = 0;                       // that the ranks of an arm had, one each: the record names so many
};

/// The whole line. `gpus` are the facts of all GPUs of the run. Throws std::domain_error naming the key of a number
/// that is not finite.
nlohmann::ordered_json to_json(const CaseRecord& record, const Job& job, const RunSettings& settings,
                               const nlohmann::ordered_json& context, const nlohmann::ordered_json& gpus);

}  // namespace gpulift
