#include "gpu_sample.hpp"

#include <array>
#include <sstream>
#include <utility>

namespace gpulift {
namespace {

// nvmlClocksEventReason* of nvml.h, written out because the harness is built on machines without that header;
// nvml.cpp compares them with it.
constexpr unsigned long long kGpuIdle = 0x1;
constexpr std::array<std::pair<unsigned long long, const char*>, 8> kReasons{{
    {0x2, "applications_clocks_setting"},
    {0x4, "sw_power_cap"},
    {0x8, "hw_slowdown"},
    {0x10, "sync_boost"},
    {0x20, "sw_thermal_slowdown"},
    {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake_slowdown"},
    {0x100, "display_clock_setting"},
}};

}  // namespace

std::vector<std::string> throttle_names(unsigned long long reasons) {
  std::vector<std::string> names;
  reasons &= ~kGpuIdle;
  for (const auto& [bit, name] : kReasons) {
    if ((reasons & bit) != 0) names.emplace_back(name);
    reasons &= ~bit;
  }
  if (reasons != 0) {
    std::ostringstream other;
    other << "other_0x" << std::hex << reasons;
    names.push_back(other.str());
  }
  return names;
}

}  // namespace gpulift
