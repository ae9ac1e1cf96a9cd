#include "cpu_time.hpp"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace gpulift {
namespace {

/// None for the clock of a process that ended meanwhile.
std::optional<double> clock_s(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return std::nullopt;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double own_s() { return clock_s(CLOCK_PROCESS_CPUTIME_ID).value_or(0); }

std::optional<double> process_s(pid_t process) {
  clockid_t clock{};
  return clock_getcpuclockid(process, &clock) == 0 ? clock_s(clock) : std::nullopt;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

/// Of the children that this process has waited for, and of theirs.
double waited_for_s() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::filesystem::path folder_of(pid_t process) { return std::filesystem::path("/proc") / std::to_string(process); }

/// Of the children that another process has waited for: cutime and cstime of proc_pid_stat(5).
double waited_for_s(pid_t process) {
  std::string line;
  std::getline(std::ifstream(folder_of(process) / "stat"), line);
  const auto name_end = line.rfind(')');  // the name before it may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  constexpr int kFirst = 3, kChildrenUser = 16;  // counted from 1, as in the manual
  std::string skipped;
  for (int field = kFirst; field < kChildrenUser; ++field) fields >> skipped;
  double user_ticks = 0;
  double system_ticks = 0;
  fields >> user_ticks >> system_ticks;
  return (user_ticks + system_ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// Linux lists children by the thread that started them.
std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator(folder_of(process) / "task", none)) {
    std::ifstream list(thread.path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

std::vector<pid_t> descendants() {
  std::vector<pid_t> family{getpid()};
  for (std::size_t i = 0; i < family.size(); ++i) {
    for (const pid_t child : children_of(family[i])) {
      // One whose thread has just ended is listed under another, too.
      if (std::find(family.begin(), family.end(), child) == family.end()) family.push_back(child);
    }
  }
  family.erase(family.begin());
  return family;
}

}  // namespace

CpuMeter::CpuMeter(bool with_children)
    : with_children_(with_children), others_(with_children ? found() : Others()), own_s_(own_s()) {}

void CpuMeter::restart() {
  if (with_children_ && !ask_again()) others_ = found();
  own_s_ = own_s();
}

double CpuMeter::used_s() const {
  const double now_s = own_s();  // before the others are looked at
  return std::max(0.0, now_s - own_s_ + (with_children_ ? found().used_s - others_.used_s : 0));
}

/// All descendants, living and waited for.
CpuMeter::Others CpuMeter::found() {
  constexpr int kTries = 3;
  Others others;
  double waited_s = waited_for_s();
  for (int i = 0; i < kTries; ++i) {
    others = {};
    for (const pid_t process : descendants()) {
      const double by_it_s = others.waited_s[process] = waited_for_s(process);
      others.used_s += process_s(process).value_or(0) + by_it_s;
    }
    const double now_waited_s = waited_for_s();
    if (now_waited_s == waited_s) break;
    waited_s = now_waited_s;  // a child was waited for meanwhile, and may have been counted with the living
  }
  others.used_s += waited_s;
  return others;
}

/// False where one of those that were found has ended.
bool CpuMeter::ask_again() {
  double used_s = waited_for_s();
  for (const auto& [process, waited_s] : others_.waited_s) {
    const auto process_time_s = process_s(process);
    if (!process_time_s) return false;
    used_s += *process_time_s + waited_s;
  }
  others_.used_s = used_s;
  return true;
}

}  // namespace gpulift
