#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace gpulift {

/// Progress on standard error with the time left: one line that is rewritten on a terminal, plain lines elsewhere.
class Progress {
 public:
  Progress();
  /// `weight` is the share of the whole that each step stands for; any unit.
  void plan(std::size_t steps, double weight);
  void begin(const std::string& what);
  void end(const std::string& what, const std::string& outcome, double weight);
  /// A line that stays.
  void say(const std::string& line);
  void finish();

 private:
  std::string position() const;
  std::string time_left() const;

  bool terminal_;
  std::size_t steps_ = 0;
  std::size_t done_ = 0;
  double weight_ = 0;
  double done_weight_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace gpulift
