#pragma once
// The first half of a case: each arm is made alone, takes a step and is checked. Nothing is timed before all have
// passed.

#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "case_run.hpp"
#include "core/harness/technique.hpp"
#include "core/harness/window.hpp"
#include "core/host/record/record.hpp"
#include "group_runner.hpp"

namespace gpulift {

/// One arm on its way through a case.
struct Entry {
  Arm& arm;
  const Check& check;
  ArmRecord record;                           // with its name, role and cost
  std::unique_ptr<GroupRunner> workers = {};  // until the arms are made
  std::exception_ptr failed_start = {};       // of its workers, said when it is the arm's turn
  std::unique_ptr<ArmRunner> runner = {};
  std::optional<double> value = {};  // that a Python arm gave, to be held against the others'

  double tolerance() const { return arm.tolerance.value_or(check.tolerance); }
};

/// Those that were not skipped.
std::vector<Entry*> usable_of(std::vector<Entry>& entries);

/// Whether the arm is slowed down on purpose: the head of a duet, or else every arm.
bool is_planted(const Entry& entry, const Job& job, const RunSettings& settings);

class ArmChecks {
 public:
  /// `device` is that of this process, null where its arms use none.
  ArmChecks(const Job& job, const LaunchContext& launch, DeviceSession* device, CaseRecord& record);

  /// Starts the workers of all, then checks one after the other, those in workers in the order in which arms allocate:
  /// these keep what they allocate. An arm that cannot run here is skipped in its record. Throws Failed where one is
  /// wrong, or names a roof that there is not.
  void check(std::vector<Entry>& entries, const std::vector<std::size_t>& order);

  /// Seconds of check() by the record's key, of so many in all: starting workers, what they say of references and of
  /// what they compiled, and the rest.
  std::map<std::string, double> time_s(double all_s) const;
  bool uses_device() const { return uses_device_; }           // here, or in a worker
  std::size_t watched_gpus() const { return watched_gpus_; }  // those whose telemetry counts

 private:
  void start_workers(std::vector<Entry>& entries, const std::vector<std::size_t>& order);
  void start(Entry& entry);
  int own_port();
  void prepare(Entry& entry);
  void check_here(Entry& entry);
  void check_workers(Entry& entry);
  void take(Entry& entry, const Hello& hello);

  const Job& job_;
  const LaunchContext& launch_;
  DeviceSession* device_;
  bool uses_device_;
  std::size_t watched_gpus_ = 1;
  double start_s_ = 0;
  std::map<std::string, double> spent_s_ = {{"reference", 0}, {"compile", 0}};  // of all arms
  std::set<int> ports_;  // that groups meet at: the system may call one free again until it is used
  CaseRecord& record_;
};

}  // namespace gpulift
