#pragma once

#include <cstddef>
#include <span>

#include "core/harness/sampler.hpp"
#include "core/host/record/job.hpp"

namespace gpulift {

/// Of a window, that the clocks of its hosts may differ by.
inline constexpr double kLargestClockError = 0.01;

/// What the arms of a case are, as far as their windows depend on it.
struct SampledArms {
  std::size_t count = 0;
  bool on_device = false;
  bool by_events = false;               // device events judge all of them
  bool ceiling = false;                 // rates against the hardware, not arms against each other
  bool rest = false;                    // some give up their memory between windows
  bool draws_power = false;             // matrix products, which reach the power cap
  double clock_error_s = 0;             // by which the clocks of their hosts may differ
  std::span<const double> step_s = {};  // seconds of a step of each, once they are known
};

/// How long the windows of a case are, how many there are at least, and when they end. A case with a step of more than
/// half a window has fewer of them, and a minute of windows at most unless more is asked. The seed is left to the
/// caller.
SamplingPlan sampling_plan(const Job& job, const RunSettings& settings, const SampledArms& arms);

}  // namespace gpulift
