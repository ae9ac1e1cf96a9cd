#include "cpu_time.hpp"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace gpulift {
namespace {

/// 0 for the clock of a process that ended meanwhile.
double clock_s(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double process_s(pid_t process) {
  clockid_t clock{};
  return clock_getcpuclockid(process, &clock) == 0 ? clock_s(clock) : 0;
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

double descendants_s() {
  double total_s = 0;
  std::vector<pid_t> family{getpid()};
  for (std::size_t i = 0; i < family.size(); ++i) {
    for (const pid_t child : children_of(family[i])) {
      // One whose thread has just ended is listed under another, too.
      if (std::find(family.begin(), family.end(), child) != family.end()) continue;
      family.push_back(child);
      total_s += process_s(child) + waited_for_s(child);
    }
  }
  return total_s;
}

/// Of all descendants, living and waited for.
double others_s() {
  constexpr int kTries = 3;
  double waited_s = waited_for_s();
  double living_s = 0;
  for (int i = 0; i < kTries; ++i) {
    living_s = descendants_s();
    const double now_waited_s = waited_for_s();
    if (now_waited_s == waited_s) break;
    waited_s = now_waited_s;  // a child was waited for meanwhile, and may have been counted with the living
  }
  return living_s + waited_s;
}

}  // namespace

CpuMeter::CpuMeter(bool with_children)
    : with_children_(with_children),
      others_s_(with_children ? others_s() : 0),
      own_s_(clock_s(CLOCK_PROCESS_CPUTIME_ID)) {}

double CpuMeter::used_s() const {
  const double own_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);  // before the others are looked at
  return std::max(0.0, own_s - own_s_ + (with_children_ ? others_s() - others_s_ : 0));
}

}  // namespace gpulift
