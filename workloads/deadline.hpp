#pragma once

#include <algorithm>
#include <chrono>

namespace gpulift {

/// When a budget of time ends that began with the object.
class Deadline {
 public:
  explicit Deadline(double budget_s)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(budget_s))) {}
  bool passed() const { return Clock::now() >= end_; }
  double left_s() const { return std::max(0.0, std::chrono::duration<double>(end_ - Clock::now()).count()); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

}  // namespace gpulift
