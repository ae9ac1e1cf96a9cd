#pragma once
// The device's own clocks: a kernel that holds a stream until the host lets go, samples of the cycle counter and the
// nanosecond timer, and a spin of known length to test the instrument with.

#include <cstdint>
#include <memory>
#include <optional>

#include "handles.hpp"

namespace gpulift {

/// Holds a stream, so that work can be queued behind it without host launch cost leaking into device time.
class Hold {
 public:
  Hold();
  /// Enqueues the holding kernel. It lets go by itself after `limit_s`, so that a launch queue that fills up cannot
  /// deadlock.
  void engage(cudaStream_t stream, double limit_s);
  void release();
  /// After the stream was synchronised: the hold ended by its limit and not by release().
  bool timed_out() const;

 private:
  struct Flags {
    volatile std::uint32_t released;
    volatile std::uint32_t timed_out;
  };
  std::unique_ptr<Flags, cudaError_t (*)(void*)> flags_;  // pinned, visible to the device
};

/// The cycle counter of multiprocessor 0 and the nanosecond timer, read at both ends of a window.
class SmClock {
 public:
  explicit SmClock(int multiprocessors);
  void sample_begin(cudaStream_t stream) { sample(stream, 0); }
  void sample_end(cudaStream_t stream) { sample(stream, 1); }
  /// After the stream was synchronised: mean SM clock between the samples in Hz; none when the samples are unusable
  /// (no block ran on multiprocessor 0, or the timer did not advance).
  std::optional<double> mean_hz() const;

 private:
  struct Sample {
    unsigned long long time_ns;
    unsigned long long cycles;
  };
  void sample(cudaStream_t stream, int index);

  int multiprocessors_;
  std::unique_ptr<Sample[], cudaError_t (*)(void*)> samples_;  // pinned, written by the device
};

/// Enqueues one thread that spins for `cycles` of its multiprocessor's cycle counter and then stores the cycles that
/// really passed in `*spun` (device or pinned memory; may be null).
void enqueue_spin(cudaStream_t stream, std::uint64_t cycles, unsigned long long* spun);

}  // namespace gpulift
