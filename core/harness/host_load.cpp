#include "host_load.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace gpulift {
namespace {

constexpr double kLeastTime_s = 0.1;

double seconds(double ticks) { return ticks / static_cast<double>(sysconf(_SC_CLK_TCK)); }

struct ProcessTimes {
  int parent = 0;
  double ticks = 0;  // its own, and of children that ended
};

/// Fields of /proc/PID/stat (proc_pid_stat(5)): after the name, which may hold anything, come state, ppid, ...
std::optional<ProcessTimes> process_times(const std::filesystem::path& file) {
  std::string line;
  if (!std::getline(std::ifstream(file), line)) return std::nullopt;  // it ended meanwhile
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  constexpr int kParent = 4, kUser = 14, kChildrenSystem = 17;  // counted from 1, as in the manual
  ProcessTimes times;
  std::string field;
  for (int number = 3; number <= kChildrenSystem; ++number) {
    if (!(fields >> field)) return std::nullopt;
    double value = 0;
    if (number != 3 && std::from_chars(field.data(), field.data() + field.size(), value).ec != std::errc{})
      return std::nullopt;
    if (number == kParent) times.parent = static_cast<int>(value);
    if (number >= kUser) times.ticks += value;
  }
  return times;
}

double ticks_of_family(const std::filesystem::path& proc, int pid) {
  std::map<int, ProcessTimes> processes;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(proc, none)) {
    const std::string name = entry.path().filename();
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc{} || end != name.data() + name.size()) continue;
    if (const auto times = process_times(entry.path() / "stat")) processes[number] = *times;
  }
  double ticks = 0;
  std::vector<int> family{pid};
  for (std::size_t i = 0; i < family.size(); ++i) {
    ticks += processes[family[i]].ticks;
    for (const auto& [number, times] : processes) {
      if (times.parent == family[i]) family.push_back(number);
    }
  }
  return ticks;
}

}  // namespace

std::optional<CpuTimes> cpu_times(const std::filesystem::path& root) { return cpu_times(root, getpid()); }

std::optional<CpuTimes> cpu_times(const std::filesystem::path& root, int pid) {
  std::ifstream stat(root / "proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  stat >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  if (!stat || name != "cpu") return std::nullopt;
  return CpuTimes{.busy_s = seconds(user + nice + system + irq + softirq),
                  .stolen_s = seconds(steal),
                  .own_s = seconds(ticks_of_family(root / "proc", pid))};
}

nlohmann::ordered_json host_load(const CpuTimes& before, const CpuTimes& after, double time_s) {
  if (time_s < kLeastTime_s) return nullptr;
  const double own_cores = (after.own_s - before.own_s) / time_s;
  const double busy_cores = (after.busy_s - before.busy_s) / time_s;
  return {{"own_cores", std::max(0.0, own_cores)},
          {"other_cores", std::max(0.0, busy_cores - own_cores)},
          {"stolen_cores", std::max(0.0, (after.stolen_s - before.stolen_s) / time_s)}};
}

}  // namespace gpulift
