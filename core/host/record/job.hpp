#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "core/harness/json.hpp"

namespace gpulift {

/// The interpreter that the variable GPULIFT_SETUP_PYTHON names (./gpulift sets it), or else that of the build.
std::string default_python();

/// What a user chose for a whole run.
struct RunSettings {
  int launches = 3;
  bool quick = false;
  double arm_time_s = 0.3;    // per arm, case and launch, inside windows and lead-ins
  double precision = 0.0025;  // stop earlier when the running interval's half-width is below
  double timeout_s = 120;     // of silence, while an arm is made and checked, or a block is measured; see timeout_of()
  std::uint64_t seed = 1;
  std::vector<int> gpus =
      {};                    // CUDA indices, the first of which is measured alone; empty: the least that the cases need
  std::string scratch = {};  // the run's folder for files, which it removes at its end; empty: none, and why
  std::string scratch_missing = {};
  double plant = 0;           // fraction by which the head of a duet, or else every arm, is slowed down on purpose
  bool profile = false;       // in place of windows one step of each arm, for ncu or nsys around this program
  bool prove_checks = false;  // ask each check of C++ arms before a step, too, and fail the arm where that passes
  std::string python = default_python();  // the interpreter of Python arms, in a duet the head's
  std::string base_python = {};           // the base's; empty: the same
  /// Ranks that a launcher started, maybe on several hosts, as gpulift.ranks describes them: null where this program
  /// starts all.
  ///   relay        the command that stands for a rank's worker, once the rank's number is behind it
  ///   address      of rank 0's host, where groups meet
  ///   environment  variables of rank 0's workers
  ///   places       of each rank its node, local_rank, local_ranks and gpu (null: none)
  ///   facts        for records
  nlohmann::ordered_json given = {};
};

/// One case in one launch; for a duet, one arm of it.
struct Job {
  std::string technique;
  std::filesystem::path module;
  std::filesystem::path base_module;  // of the duet; empty: no duet
  std::string arm;                    // of the duet
  std::string side = {};              // of a duet's worker and its files: "base" or, empty, the head
  std::string case_id;
  nlohmann::ordered_json point;
  bool quick = false;
  bool off_sweep = false;  // see CaseInfo
  std::string regime;
  bool whole_steps = false;
  int gpus = 1;                        // how many the case needs
  bool all_workers = false;            // no arm runs in the launch's own process, which then opens no device
  std::vector<std::string> arms = {};  // those to measure; empty: all
  nlohmann::ordered_json script = {};  // the manifest of a technique in Python alone; null: the module has it
  int launch = 0;
  nlohmann::ordered_json recalled = nlohmann::ordered_json::object();  // notes of earlier launches
  nlohmann::ordered_json earlier = nlohmann::ordered_json::object();   // metrics of an earlier launch, by arm
  std::filesystem::path shared = {};  // its folder in shared memory while it runs; empty: none
  nlohmann::ordered_json about = nlohmann::ordered_json::object();  // see about_technique()

  bool is_duet() const { return !base_module.empty(); }
};

/// How long a case may be silent, in seconds. Whole training steps get eight times as long as others: an arm may have
/// to compile its model, which it does in one go, and each is checked over many steps.
double timeout_of(const Job& job, const RunSettings& settings);

nlohmann::ordered_json to_json(const RunSettings& settings);
RunSettings settings_from_json(const nlohmann::ordered_json& json);
nlohmann::ordered_json to_json(const Job& job);
Job job_from_json(const nlohmann::ordered_json& json);

/// What a record says of the technique itself, from its manifest: question, expectation, claims, ceiling, source, and
/// those further traits that it has: integrity, launch_bound, whole_steps, controls,
/// predictions, what was found, caches.
nlohmann::ordered_json about_technique(const nlohmann::ordered_json& manifest);

/// As records write it: 2026-11-21T04:00:00Z.
std::string utc(std::time_t moment);

/// The parts of a record that are known before the case runs: names, case, launch, time, and what the job knows about
/// the technique. The rest of a record for a case that never ran is outcome, reason and context.
nlohmann::ordered_json begin_record(const Job& job, const RunSettings& settings);

/// "options" of a record's context: the settings that change what is measured.
nlohmann::ordered_json options_of(const RunSettings& settings);

/// Adds to a record's context what the run is: its options and, where a launcher started them, its ranks.
void add_settings(nlohmann::ordered_json& context, const RunSettings& settings);

/// What to do about an error of the job's case: of one that no sweep has, take a value that its technique can have.
std::string remedy_of_error(const Job& job);

/// The text with files by their names alone: a record holds no path of the machine.
std::string without_folders(const std::string& text);

/// Sets outcome, reason and remedy (if any) on one line, the reason without folders.
void set_outcome(nlohmann::ordered_json& record, const std::string& outcome, const std::string& reason,
                 const std::string& remedy = "");

}  // namespace gpulift
