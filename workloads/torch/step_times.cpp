#include "step_times.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

namespace gpulift {

double percentile(std::vector<double> values, double share) {
  if (values.empty()) throw std::invalid_argument("a percentile of nothing");
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

Metrics step_percentiles(const std::function<void()>& step_and_wait, const StepTiming& timing) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  std::vector<double> step_s;
  const auto start = Clock::now();
  for (int i = 0; i < timing.most_steps; ++i) {
    if (i >= timing.least_steps && seconds_since(start) > timing.most_time_s) break;
    const auto step_start = Clock::now();
    step_and_wait();
    step_s.push_back(seconds_since(step_start));
  }
  return {{"step_p50_s", percentile(step_s, 0.5)},
          {"step_p99_s", percentile(step_s, 0.99)},
          {"timed_steps", static_cast<double>(step_s.size())}};
}

}  // namespace gpulift
