#include "hold_capacity.hpp"

#include <algorithm>
#include <limits>

namespace gpulift {
namespace {

constexpr int kInARow = 2;
constexpr double kNeverDry = 0.9;        // share of a step's device time within which it must be issued
constexpr double kSurelyNeverDry = 0.7;  // lower, so that an arm near the limit does not go back and forth

}  // namespace

HoldCapacity::Split HoldCapacity::split(std::int64_t lead_in_steps, std::int64_t steps) const {
  const std::int64_t lead_in = std::min(lead_in_steps, capacity_ / 2);
  return {lead_in, std::min({steps, kHeldSteps, capacity_ - lead_in})};
}

// Behind the longest lead-in.
std::int64_t HoldCapacity::max_steps() const {
  if (!capped_ || !can_hold()) return std::numeric_limits<std::int64_t>::max();
  return std::min(kHeldSteps, capacity_ - capacity_ / 2);
}

void HoldCapacity::saw_time_out(std::int64_t queued_steps) {
  most_queued_ = std::max(most_queued_, queued_steps);
  if (++time_outs_ < kInARow) return;
  capacity_ = std::min(capacity_ / 2, most_queued_);  // in the end none
  time_outs_ = 0;
  most_queued_ = 0;
}

bool HoldCapacity::saw_release(std::int64_t held, std::int64_t steps, double issue_s, double step_s) {
  time_outs_ = 0;
  most_queued_ = 0;
  // What followed the hold never waited for the host if issuing a step takes less than running it. (Issuing the whole
  // window tells less: a full launch queue makes the host wait for the device.)
  const bool never_dry = held == steps || issue_s < kNeverDry * step_s;
  ran_dry_ = never_dry ? 0 : ran_dry_ + 1;
  could_be_longer_ = issue_s < kSurelyNeverDry * step_s ? could_be_longer_ + 1 : 0;
  if (ran_dry_ >= kInARow) capped_ = true;
  if (could_be_longer_ >= kInARow) capped_ = false;
  return never_dry;
}

}  // namespace gpulift
