#include "progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

namespace gpulift {
namespace {

constexpr const char* kClearLine = "\r\033[K";
// A line that went on below could not be cleared: the terminal cuts it at its edge instead.
constexpr const char* kStopWrapping = "\033[?7l";
constexpr const char* kWrap = "\033[?7h";
constexpr std::chrono::seconds kSilence{30};

}  // namespace

Progress::Progress()
    : Progress(std::cerr, isatty(STDERR_FILENO) != 0, [] { return std::chrono::steady_clock::now(); }) {}

Progress::Progress(std::ostream& out, bool terminal, Now now)
    : out_(out), terminal_(terminal), now_(std::move(now)), start_(now_()), last_line_(start_) {}

void Progress::plan(std::size_t steps, double weight) {
  steps_ = steps;
  weight_ = weight;
  start_ = now_();
}

void Progress::begin(const std::string& what) {
  step_ = what;
  doing_.clear();
  if (terminal_) rewrite(whole_line());
}

void Progress::doing(const std::string& what) {
  doing_ = ": " + what;
  if (terminal_) rewrite(whole_line());
  still();
}

void Progress::still() {
  if (!terminal_ && now_() - last_line_ >= kSilence) write_line(whole_line());
}

void Progress::end(const std::string& what, const std::string& outcome, double weight) {
  ++done_;
  done_weight_ += weight;
  const bool worth_keeping = outcome != "ok" && !outcome.starts_with("skipped");
  if (!terminal_) {
    write_line(position() + " " + what + ": " + outcome + time_left());
  } else if (worth_keeping) {
    say(what + ": " + outcome);
  } else {
    finish();
  }
}

void Progress::say(const std::string& line) {
  finish();
  write_line(line);
}

void Progress::finish() {
  if (terminal_) out_ << kClearLine << std::flush;
}

void Progress::rewrite(const std::string& line) { out_ << kClearLine + (kStopWrapping + line) + kWrap << std::flush; }

void Progress::write_line(const std::string& line) {
  out_ << line << std::endl;
  last_line_ = now_();
}

std::string Progress::position() const {
  std::ostringstream text;
  text << '[' << std::setw(static_cast<int>(std::to_string(steps_).size())) << done_ << '/' << steps_ << ']';
  return text.str();
}

std::string Progress::whole_line() const { return position() + " " + step_ + doing_ + time_left(); }

std::string Progress::time_left() const {
  if (done_weight_ <= 0 || done_ >= steps_) return "";
  const std::chrono::duration<double> passed = now_() - start_;
  const auto left_s = static_cast<long>(passed.count() * std::max(0.0, weight_ - done_weight_) / done_weight_);
  std::ostringstream text;
  text << "  (about " << left_s / 60 << ':' << std::setw(2) << std::setfill('0') << left_s % 60 << " left)";
  return text.str();
}

}  // namespace gpulift
