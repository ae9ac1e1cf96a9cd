#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>

namespace gpulift {

/// Progress on standard error with the time left: one line that is rewritten on a terminal, plain lines elsewhere.
class Progress {
 public:
  using Now = std::function<std::chrono::steady_clock::time_point()>;

  Progress();
  Progress(std::ostream& out, bool terminal, Now now);
  /// `weight` is the share of the whole that each step stands for; any unit.
  void plan(std::size_t steps, double weight);
  void begin(const std::string& what);
  /// What the step that began is at; to be told as often as it changes. Where lines stay, one is written only after
  /// half a minute of silence.
  void doing(const std::string& what);
  /// Says again what was told last, where lines stay and half a minute was silent.
  void still();
  void end(const std::string& what, const std::string& outcome, double weight);
  /// A line that stays.
  void say(const std::string& line);
  void finish();

 private:
  void rewrite(const std::string& line);
  void write_line(const std::string& line);
  std::string position() const;
  std::string whole_line() const;
  std::string time_left() const;

  std::ostream& out_;
  bool terminal_;
  Now now_;
  std::size_t steps_ = 0;
  std::size_t done_ = 0;
  double weight_ = 0;
  double done_weight_ = 0;
  std::string step_;
  std::string doing_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_line_;
};

}  // namespace gpulift
