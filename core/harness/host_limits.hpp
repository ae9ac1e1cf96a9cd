#pragma once
// What the process may take of its machine. In a header of its own because the engine records it and host techniques
// size their threads and buffers by it. `root` is where /proc and /sys lie.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace gpulift {

/// The lowest limits of the process's control groups and those above them; absent where none limits it.
struct GroupLimits {
  std::optional<double> cores;  // whole ones or not: --cpus=1.5
  std::optional<double> memory_bytes;
};

/// A number that is the first word of a file, or the second; absent for "max", and where there is no such file.
inline std::optional<double> number_in(const std::filesystem::path& file, bool second = false) {
  std::ifstream words(file);
  double number = 0;
  std::string before;
  if (second) words >> before;
  if (!(words >> number)) return {};
  return number;
}

/// Reads control groups of version 2 and, for machines that still have it, of version 1.
inline GroupLimits group_limits(const std::filesystem::path& root = "/") {
  GroupLimits limits;
  const auto lower = [](std::optional<double>& limit, std::optional<double> to) {
    if (to && *to > 0) limit = std::min(limit.value_or(*to), *to);
  };
  const auto lower_cores = [&](std::optional<double> time_us, std::optional<double> period_us) {
    if (time_us && period_us && *period_us > 0) lower(limits.cores, *time_us / *period_us);
  };
  const auto groups = root / "sys/fs/cgroup";
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {  // "0::/a/b" of version 2, "4:cpu,cpuacct:/a/b" of version 1
    const auto begin = line.find(':');
    const auto end = line.find(':', begin + 1);
    if (begin == std::string::npos || end == std::string::npos) continue;
    std::string controllers = line.substr(begin, end - begin) + ",";
    controllers.front() = ',';
    // A container may see its own group as the root of all, whatever the path: then the levels above are not there.
    for (auto path = std::filesystem::path(line.substr(end + 1)).relative_path();; path = path.parent_path()) {
      if (controllers == ",,") {
        lower_cores(number_in(groups / path / "cpu.max"), number_in(groups / path / "cpu.max", /*second=*/true));
        lower(limits.memory_bytes, number_in(groups / path / "memory.max"));
      } else if (controllers.find(",cpu,") != std::string::npos) {
        const auto folder = groups / "cpu" / path;
        lower_cores(number_in(folder / "cpu.cfs_quota_us"), number_in(folder / "cpu.cfs_period_us"));
      } else if (controllers.find(",memory,") != std::string::npos) {
        lower(limits.memory_bytes, number_in(groups / "memory" / path / "memory.limit_in_bytes"));
      }
      if (path.empty()) break;
    }
  }
  return limits;
}

/// Of so many cores, those that the process may keep busy: more threads would be held up.
inline int allowed_cores(int cores, const std::filesystem::path& root = "/") {
  const auto limit = group_limits(root).cores;
  return limit ? std::min(cores, static_cast<int>(std::min(std::ceil(*limit), 1e6))) : cores;
}

/// The machine's memory, or what the process may have of it: beyond that it is killed.
inline std::size_t allowed_memory_bytes(const std::filesystem::path& root = "/") {
  const auto all = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return static_cast<std::size_t>(std::min(all, group_limits(root).memory_bytes.value_or(all)));
}

}  // namespace gpulift
