#pragma once

#include <cstdint>

namespace gpulift {

/// How many steps of an arm are queued behind a holding kernel: learned from what became of the windows before. Nothing
/// is concluded from one window, since the host may have been kept from its work just then; two in a row tell.
class HoldCapacity {
 public:
  /// What is queued before the hold is let go, of a lead-in and of the window after it.
  struct Split {
    std::int64_t lead_in_steps;
    std::int64_t steps;
  };
  Split split(std::int64_t lead_in_steps, std::int64_t steps) const;

  /// False when no step can be queued behind a hold: the arm waits for the device by itself.
  bool can_hold() const { return capacity_ > 0; }
  /// The longest window, in steps, that the device runs without waiting for the host, as far as is known.
  std::int64_t max_steps() const;

  /// The hold ended by its limit, with so many steps queued: the launch queue was full, or the host was late.
  void saw_time_out(std::int64_t queued_steps);

  /// The hold was let go when `held` of the window's steps had been queued, and queueing one took `issue_s`; the device
  /// took `step_s` for one. Returns whether the device never waited for the host.
  bool saw_release(std::int64_t held, std::int64_t steps, double issue_s, double step_s);

 private:
  std::int64_t capacity_ = kQueuedSteps;
  bool capped_ = false;  // windows are no longer than what can be held in one piece
  // How many windows in a row, and of the time-outs the most that was queued.
  int time_outs_ = 0;
  std::int64_t most_queued_ = 0;
  int ran_dry_ = 0;
  int could_be_longer_ = 0;

  static constexpr std::int64_t kHeldSteps = 256;  // the hold ends after this many: then the device lags the host
  static constexpr std::int64_t kQueuedSteps = 2 * kHeldSteps;  // with the lead-in; launch queues end near 1024
};

}  // namespace gpulift
