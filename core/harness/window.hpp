#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace gpulift {

/// Timings of one window of back-to-back steps: totals, not per step.
struct Window {
  double start_s = 0;                      // steady clock, at the release (held) or the first step
  double host_s = 0;                       // from there to the end of the work
  double enqueue_s = 0;                    // host time spent in the steps' calls
  std::optional<double> device_s = {};     // between two device events
  std::optional<double> sm_clock_hz = {};  // the device's cycle counter over its nanosecond timer
  bool held = false;                       // queued behind a holding kernel throughout
  /// Of the processors, all threads together: a worker's with those of its child processes, else those of this process,
  /// its telemetry included. Where the device was held, the steps' calls ahead of the release count, too.
  std::optional<double> cpu_s = {};
  /// Of the host for one empty kernel, launched behind the window: where the host may set its pace, how fast it was.
  std::optional<double> empty_launch_s = {};
  std::optional<double> precondition = {};   // what Work::precondition saw when it began
  std::optional<double> clock_error_s = {};  // of ranks on several hosts: by how much their clocks may differ
};

/// Runs windows of one arm, wherever it lives: on this thread, on a device, in a child process.
class ArmRunner {
 public:
  virtual ~ArmRunner() = default;
  /// Runs the untimed lead-in steps and then the timed ones, and waits for their end.
  virtual Window run(std::int64_t lead_in_steps, std::int64_t steps) = 0;
  /// Whether the arm gives up memory behind each window and brings it back ahead of the next, which may take seconds.
  virtual bool rests() const { return false; }
  /// From wake() to rest() one that rests stays awake, however many windows it takes; others have nothing to do.
  virtual void wake() {}
  virtual void rest() {}
  /// The longest window, in steps, that still measures what it should: a launch-bound arm cannot be queued any longer.
  virtual std::int64_t max_steps() const { return std::numeric_limits<std::int64_t>::max(); }
  /// Whether untimed work ahead of each window makes the state in which it begins: then it has no lead-in.
  virtual bool begins_afresh() const { return false; }
  /// The shortest lead-in, in steps: ranks that a collective brings in line need one.
  virtual std::int64_t least_lead_in() const { return 0; }
  /// What a step hands to the device: kernels, copies, fills and graphs, each as one; none where it cannot be counted.
  virtual std::optional<double> launches_per_step() { return std::nullopt; }
  /// Takes one step for a profiler to look at: after others, alone between cudaProfilerStart and cudaProfilerStop. On
  /// the host there is nothing to look at.
  virtual void profile_step() {}
  /// By how much the clocks of the hosts that the arm runs on may differ, as far as its windows have told, in seconds.
  virtual double clock_error_s() const { return 0; }
  /// Time of extra work that was planted to test the instrument over that of the window without it, as measured; none
  /// where nothing was planted.
  virtual std::optional<double> planted() const { return std::nullopt; }
};

/// The steady clock in seconds: the time axis of windows and telemetry.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace gpulift
