#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "gpu_sample.hpp"
#include "json.hpp"

namespace gpulift {

/// Samples a GPU on a thread of its own from construction to destruction. Times are seconds of now_s(). All members
/// may be called from any thread.
class Telemetry {
 public:
  /// `source` is called from the sampling thread and must not throw.
  explicit Telemetry(std::function<GpuSample()> source, double interval_s = 0.02);

  /// "telemetry" of a record, over the samples between the two moments: number of samples, interval_s, min, median and
  /// max of each quantity, temperature_slope_c_per_s (least squares; absent for fewer than 10 readings or less than 1
  /// s), energy_j (see energy_between), throttle names (none that hold are an empty list), and the PCIe link at its
  /// fastest, since an idle link is slowed down. What no sample has is absent.
  nlohmann::ordered_json summary(double from_s, double to_s) const;

  /// Throttle reasons of all samples between the two moments and of the last one before, so that an interval shorter
  /// than the sampling interval has the state in which it began. Samples that do not know add none.
  unsigned long long throttle_between(double from_s, double to_s) const;

  /// Energy counter of the last minus that of the first sample between the two moments, in joules; it therefore misses
  /// up to one sampling interval at either end. Absent with fewer than two readings.
  std::optional<double> energy_between(double from_s, double to_s) const;

  /// Joules that the card took between the two moments: the mean power between the first and the last update of its
  /// energy counter that were seen inside, times the whole length. So nothing that ran before or after has a part in
  /// it, and the counter's jumps do not count as energy. Absent where the counter does not resolve the time: fewer than
  /// 8 updates (with 8, seven ninths of the time or more are covered), or an update's moment, known to the time since
  /// the sample before, leaves more than 5 % open. Counters are updated as rarely as every 100 ms (ml.energy,
  /// "Thermally Stable Profiling"), and on A100 and H100 the sensor looks for a quarter of the time only (Z. Yang, K.
  /// Adamek, W. Armour, "Part-time Power Measurements", arXiv:2312.02741): the power has to be steady between updates,
  /// as it is in sustained windows.
  std::optional<double> energy_within(double from_s, double to_s) const;

  std::optional<GpuSample> latest() const;

  /// Drops samples older than `time_s`, except the last of them.
  void forget_before(double time_s);

 private:
  void run(const std::stop_token& stop);
  std::vector<GpuSample> between(double from_s, double to_s) const;

  std::function<GpuSample()> source_;
  double interval_s_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<GpuSample> samples_;
  std::jthread thread_;  // last, so that it ends before what it uses
};

}  // namespace gpulift
