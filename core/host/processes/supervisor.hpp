#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/harness/json.hpp"
#include "core/harness/process.hpp"
#include "core/harness/record_file.hpp"
#include "core/host/record/catalogue.hpp"
#include "core/host/record/job.hpp"
#include "core/host/record/resume.hpp"
#include "progress.hpp"

namespace gpulift {

/// Plans a run, gives each launch a process of its own, and keeps every record that comes back. A case that crashes,
/// hangs or poisons its device costs that case alone: a new process goes on with the next.
class Supervisor {
 public:
  /// `folder` may be null: then records are only kept in memory. `context` ("options" included) goes into records of
  /// cases that a child could not report on.
  Supervisor(const RunSettings& settings, RecordFolder* folder, nlohmann::ordered_json context, Progress& progress);

  /// Notes of an earlier run by "technique/case", for cases that have none yet.
  void recall(const std::map<std::string, nlohmann::ordered_json>& notes) { notes_.insert(notes.begin(), notes.end()); }

  /// Runs the jobs of all launches, in an order that the seed shuffles anew for each launch, less those that the folder
  /// already holds; what ended in an error there is measured again. Throws WriteError when a record cannot be written.
  /// Returns false when the user interrupted.
  bool run(const std::vector<Job>& cases);

  /// Records of this run and, when it was resumed, of the part before; one for each case and launch.
  const std::vector<RecordSummary>& records() const { return records_.all(); }

 private:
  std::vector<Job> jobs_of_launch(const std::vector<Job>& cases, int launch) const;
  bool run_all(std::vector<Job> jobs);
  std::size_t run_in_one_process(const std::vector<Job>& jobs);
  Process::Read hear(Process& child, std::string& line, double limit_s);
  void keep(const Job& job, const nlohmann::ordered_json& record);
  void keep_error(const Job& job, const std::string& reason);
  void keep_unmeasured(const Job& job, const std::string& reason, const std::string& remedy = "");
  /// None where it was not measured yet; no arms where it could not be.
  const std::set<std::string>* done(const Job& job) const;
  bool is_done(const Job& job) const;

  RunSettings settings_;
  RecordFolder* folder_;
  nlohmann::ordered_json context_;
  Progress& progress_;
  LatestRecords records_;
  std::map<std::string, std::set<std::string>> done_;  // by launch of a case: the arms that its record has
  std::set<std::string> broken_;  // cases that crashed, hung or began with an error: not tried in later launches
  std::map<std::string, nlohmann::ordered_json> notes_;
};

/// Whether the first launch of a case is its only one: each takes as long as ten of other quick cases.
bool is_measured_once(const Job& job, const RunSettings& settings);

/// `a/b/n:1, launch 2 of 3`, as progress names a step.
std::string step_name(const Job& job, const RunSettings& settings);

/// Seconds that the windows of a job are planned to take.
double planned_s(const Job& job, const RunSettings& settings, std::size_t arms);

}  // namespace gpulift
