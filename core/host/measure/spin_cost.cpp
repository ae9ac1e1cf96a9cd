#include "spin_cost.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "core/harness/stop_rule.hpp"

namespace gpulift {
namespace {

constexpr std::uint64_t kShortCycles = 20'000;
constexpr double kWarmUp_s = 0.01;      // of spinning, at least
constexpr double kWarmUpLimit_s = 0.3;  // at most, where the clock never gets flat
constexpr int kWarmUpWindows = 1000;    // the same limit where the windows' times are of no use
constexpr double kFlatClock = 0.003;    // two windows in a row this close
constexpr int kBlocks = 7;

double device_s(const Window& window) { return window.device_s.value_or(0); }

// Where the clock cannot be read, the windows' times tell whether it is flat.
void warm_up(const RunSpins& run) {
  double spun_s = 0;
  double last_pace = 0;
  for (int i = 0; i < kWarmUpWindows && spun_s < kWarmUpLimit_s; ++i) {
    const Window window = run(kShortCycles);
    spun_s += device_s(window);
    const double pace = window.sm_clock_hz.value_or(1 / device_s(window));
    const bool flat = std::abs(pace - last_pace) <= kFlatClock * pace;
    if (flat && spun_s >= kWarmUp_s) return;
    last_pace = pace;
  }
}

}  // namespace

SpinCost measure_spin_cost(const RunSpins& run, std::int64_t spins) {
  warm_up(run);
  const auto spin_s = [&](std::uint64_t cycles) { return device_s(run(cycles)) / static_cast<double>(spins); };
  std::vector<double> launches_s;
  std::vector<double> clocks_hz;
  for (int block = 0; block < kBlocks; ++block) {
    // Short, long, long, short: a clock that still moves meets both alike.
    double short_s = spin_s(kShortCycles) / 2;
    const double long_s = (spin_s(2 * kShortCycles) + spin_s(2 * kShortCycles)) / 2;
    short_s += spin_s(kShortCycles) / 2;
    launches_s.push_back(2 * short_s - long_s);
    clocks_hz.push_back(static_cast<double>(kShortCycles) / (long_s - short_s));
  }
  const SpinCost cost{std::max(0.0, median(launches_s)), median(clocks_hz)};
  if (!std::isfinite(cost.clock_hz) || cost.clock_hz <= 0) {
    throw std::runtime_error("spins of twice the cycles take no longer: extra work cannot be measured out");
  }
  return cost;
}

}  // namespace gpulift
