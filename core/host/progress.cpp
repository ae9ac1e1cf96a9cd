#include "progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

namespace gpulift {
namespace {

constexpr const char* kRewriteLine = "\r\033[K";

}  // namespace

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0), start_(std::chrono::steady_clock::now()) {}

void Progress::plan(std::size_t steps, double weight) {
  steps_ = steps;
  weight_ = weight;
  start_ = std::chrono::steady_clock::now();
}

void Progress::begin(const std::string& what) {
  if (terminal_) std::cerr << kRewriteLine << position() << ' ' << what << time_left() << std::flush;
}

void Progress::end(const std::string& what, const std::string& outcome, double weight) {
  ++done_;
  done_weight_ += weight;
  const bool worth_keeping = outcome != "ok" && !outcome.starts_with("skipped");
  if (terminal_) {
    std::cerr << kRewriteLine;
    if (worth_keeping) std::cerr << what << ": " << outcome << '\n';
    std::cerr << std::flush;
  } else {
    std::cerr << position() << ' ' << what << ": " << outcome << time_left() << '\n';
  }
}

void Progress::say(const std::string& line) {
  if (terminal_) std::cerr << kRewriteLine;
  std::cerr << line << std::endl;
}

void Progress::finish() {
  if (terminal_) std::cerr << kRewriteLine << std::flush;
}

std::string Progress::position() const {
  std::ostringstream text;
  text << '[' << std::setw(static_cast<int>(std::to_string(steps_).size())) << done_ << '/' << steps_ << ']';
  return text.str();
}

std::string Progress::time_left() const {
  if (done_weight_ <= 0 || done_ >= steps_) return "";
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  const auto left_s = static_cast<long>(passed.count() * std::max(0.0, weight_ - done_weight_) / done_weight_);
  std::ostringstream text;
  text << "  (about " << left_s / 60 << ':' << std::setw(2) << std::setfill('0') << left_s % 60 << " left)";
  return text.str();
}

}  // namespace gpulift
