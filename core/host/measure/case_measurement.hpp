#pragma once
// The measuring of one case: its arms are checked one by one, then all are timed in turn.

#include <memory>
#include <vector>

#include "arm_checks.hpp"
#include "core/host/record/record.hpp"
#include "gpu_watch.hpp"

namespace gpulift {

class CaseMeasurement {
 public:
  CaseMeasurement(const Job& job, LaunchContext& launch, const Technique& technique, CaseRecord& record);

  /// Checks, times and writes all into the record. Throws Skipped where the baseline cannot run, Failed where arms
  /// disagree or a rate is beyond physics.
  void measure(std::vector<Entry> entries);

 private:
  std::vector<std::size_t> allocation_order(std::size_t arms) const;
  void allocate(std::vector<Entry>& entries, const std::vector<std::size_t>& order);
  std::unique_ptr<ArmRunner> runner_of(const Entry& entry, Work work);
  std::unique_ptr<ArmRunner> plain_runner_of(const Entry& entry, Work work);
  Samples sample(const std::vector<Entry*>& usable, const GpuWatch& watch) const;
  SamplingPlan plan(const std::vector<Entry*>& usable, std::span<const double> step_s) const;
  void keep_extras(Entry& entry, const GpuWatch& watch, bool uses_device);
  void keep_order(const Samples& samples, const std::vector<Entry*>& usable, const std::vector<Entry>& all,
                  const std::vector<std::size_t>& order);
  void require_plausible(const ArmRecord& arm) const;

  const Job& job_;
  LaunchContext& launch_;
  bool ceiling_;
  bool whole_steps_;
  DeviceSession* device_;
  CaseRecord& record_;
  double case_start_s_;
};

}  // namespace gpulift
