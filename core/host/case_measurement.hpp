#pragma once
// The measuring of one case: its arms are checked one by one, then all are timed in turn.

#include <memory>
#include <string>
#include <vector>

#include "case_run.hpp"
#include "group_runner.hpp"
#include "record.hpp"
#include "trial.hpp"

namespace gpulift {

/// One arm on its way through a case.
struct Entry {
  Arm& arm;
  const Check& check;
  ArmRecord record;                           // with its name, role and cost
  std::unique_ptr<GroupRunner> workers = {};  // until the arms are made
  std::unique_ptr<ArmRunner> runner = {};
  std::optional<double> value = {};  // that a Python arm gave, to be held against the others'

  double tolerance() const { return arm.tolerance.value_or(check.tolerance); }
};

class CaseMeasurement {
 public:
  CaseMeasurement(const Job& job, LaunchContext& launch, const Technique& technique, CaseRecord& record);

  /// Checks, times and writes all into the record. Throws Skipped where the baseline cannot run, Failed where arms
  /// disagree or a rate is beyond physics.
  void measure(std::vector<Entry> entries);

 private:
  void prepare(Entry& entry);
  void check_here(Entry& entry);
  void check_workers(Entry& entry);
  void take(Entry& entry, const Hello& hello);
  void compare_values(std::vector<Entry>& entries) const;
  void require_same(Entry& entry, const std::string& who, double error) const;
  std::vector<Entry*> usable_of(std::vector<Entry>& entries) const;
  std::vector<std::size_t> allocation_order(std::size_t arms) const;
  void allocate(std::vector<Entry>& entries, const std::vector<std::size_t>& order);
  std::unique_ptr<ArmRunner> runner_of(const Entry& entry, Work work);
  std::unique_ptr<ArmRunner> plain_runner_of(const Entry& entry, Work work);
  bool is_planted(const Entry& entry) const;
  Samples sample(const std::vector<Entry*>& usable);
  SamplingPlan plan(const std::vector<Entry*>& usable, std::span<const double> step_s) const;
  void keep_samples(Entry& entry, ArmSamples samples) const;
  void keep_joules(Entry& entry) const;
  void keep_extras(Entry& entry);
  void keep_launches(Entry& entry) const;
  std::optional<double> energy_within(const Window& window) const;
  void keep_order(const Samples& samples, const std::vector<Entry*>& usable, const std::vector<Entry>& all,
                  const std::vector<std::size_t>& order);
  void keep_telemetry(double from_s, double to_s);
  void require_precondition(const ArmRecord& arm) const;
  void require_plausible(const ArmRecord& arm) const;
  void tell(const std::string& what) const;

  const Job& job_;
  LaunchContext& launch_;
  bool ceiling_;
  bool whole_steps_;
  DeviceSession* device_;
  bool uses_device_;              // here, or in a worker
  std::size_t watched_gpus_ = 1;  // those whose telemetry counts
  CaseRecord& record_;
  double case_start_s_;
};

}  // namespace gpulift
