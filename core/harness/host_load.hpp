#pragma once
// How busy the host's processors are, and with whose work: a step that launches bound slows down when others work too.

#include <filesystem>
#include <optional>

#include "json.hpp"

namespace gpulift {

/// Processor time so far, in seconds summed over processors; ticks of the kernel, 10 ms on most machines.
struct CpuTimes {
  double busy_s = 0;    // of all processes, the kernel's work and interrupts
  double stolen_s = 0;  // a hypervisor gave it to other machines
  double own_s = 0;     // of this process and its descendants
};

/// Reads /proc below `root`; empty where it does not tell. `pid` is the process whose descendants are its own.
std::optional<CpuTimes> cpu_times(const std::filesystem::path& root = "/");
std::optional<CpuTimes> cpu_times(const std::filesystem::path& root, int pid);

/// "host_load" of a record: how many processors this process with its descendants (own_cores), all others (other_cores)
/// and other machines (stolen_cores) kept busy on average between two moments; null where the time is too short for the
/// kernel's ticks.
nlohmann::ordered_json host_load(const CpuTimes& before, const CpuTimes& after, double time_s);

}  // namespace gpulift
