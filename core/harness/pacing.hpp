#pragma once
// How long the steps of arms take, and so how many a window of each has.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sampler.hpp"

namespace gpulift {

inline constexpr std::int64_t kMaxSteps = 1 << 24;
inline constexpr double kBetweenSigns_s = 1;

class Pacing {
 public:
  /// All are the sampler's and outlive this; `arms` is where numbers of steps are kept, `plan` what windows last by it.
  Pacing(const std::vector<ArmRunner*>& runners, const std::vector<Clock>& clocks, const SamplingPlan& plan,
         std::vector<ArmSamples>& arms);

  /// From one step on, up to a quarter of a window. Says so when an arm takes long to begin.
  void calibrate(std::size_t arm, const std::function<void(const std::string&)>& tell);
  /// Runs the arm for the plan's time, and takes the fastest pace; the last window that was run.
  Window warm_up(std::size_t arm, double& fastest_step_s);
  /// A window that is too long to be queued behind the holding kernel shows it only when it is tried as planned. Long
  /// windows are spared: what keeps their warm-up, a quarter as long, from being held is seen there.
  void rehearse();

  /// Seconds of a step of each arm, at the fastest pace seen.
  const std::vector<double>& step_s() const { return step_s_; }
  /// Seconds that a step takes of the case's time: with the untimed work around it, where each window has its own.
  std::vector<double> times_s() const;

 private:
  void set_steps(std::size_t arm, double step_s);
  double pace_s(std::size_t arm, const Window& window, std::int64_t steps) const;

  const std::vector<ArmRunner*>& runners_;
  const std::vector<Clock>& clocks_;
  const SamplingPlan& plan_;
  std::vector<ArmSamples>& arms_;
  std::vector<double> step_s_;
  std::vector<double> taken_s_;  // per arm that begins afresh, a window with all around it; else 0
};

}  // namespace gpulift
