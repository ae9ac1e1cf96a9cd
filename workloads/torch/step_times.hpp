#pragma once

#include <functional>
#include <vector>

#include "core/harness/technique.hpp"

namespace gpulift {

/// The value that at least this share of the values does not exceed (nearest rank); with less than 100 values, 0.99 is
/// their largest. Throws std::invalid_argument without values.
double percentile(std::vector<double> values, double share);

/// Times single steps, each with what it waits for: "step_p50_s", "step_p99_s" and "timed_steps". At most `most_steps`;
/// ends earlier, though not before `least_steps`, when all took more than `most_time_s`.
struct StepTiming {
  int least_steps = 32;
  int most_steps = 112;
  double most_time_s = 3;
};
Metrics step_percentiles(const std::function<void()>& step_and_wait, const StepTiming& timing = {});

}  // namespace gpulift
