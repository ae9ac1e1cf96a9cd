#pragma once
// What telemetry says of the GPUs that a case uses: the first ones of the run's.

#include <cstddef>
#include <optional>
#include <span>

#include "case_run.hpp"
#include "core/harness/window.hpp"
#include "core/host/record/record.hpp"

namespace gpulift {

class GpuWatch {
 public:
  /// `uses_device`: whether an arm does, here or in a worker.
  GpuWatch(const LaunchContext& launch, std::size_t gpus, bool uses_device);

  bool sees_none() const { return watched_.empty(); }
  /// Whether the hardware of one of them cut its clocks between the two moments.
  bool slowed_by_hardware(double from_s, double to_s) const;
  /// Joules of the first of them, one for each rank of an arm; none where a card's counter does not resolve the window.
  std::optional<double> energy_within(const Window& window, int ranks) const;
  /// Writes what was seen between the two moments into the record, or why nothing was, and forgets what was before.
  void keep(CaseRecord& record, double from_s, double to_s) const;

 private:
  std::span<Telemetry* const> watched_;
  std::string missing_;  // why none is watched
};

}  // namespace gpulift
