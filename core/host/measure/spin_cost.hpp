#pragma once

#include <cstdint>
#include <functional>

#include "core/harness/window.hpp"

namespace gpulift {

/// What a spin takes: `launch_s` and its cycles at `clock_hz`.
struct SpinCost {
  double launch_s;
  double clock_hz;
};

/// Runs a window of a fixed number of back-to-back spins of so many cycles.
using RunSpins = std::function<Window(std::uint64_t cycles)>;

/// Spins until the clock is up and flat (at most 0.3 s), then takes windows of short and of twice as long spins in
/// turn: what the long ones take more is cycles, the rest is launches. `spins` is how many a window has. Throws
/// std::runtime_error when longer spins take no longer.
SpinCost measure_spin_cost(const RunSpins& run, std::int64_t spins);

}  // namespace gpulift
