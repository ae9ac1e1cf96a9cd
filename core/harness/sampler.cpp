#include "sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>

#include "stop_rule.hpp"

namespace gpulift {
namespace {

constexpr double kConfidence = 0.975;  // covers 95 % although it is looked at after every block
constexpr std::int64_t kMaxSteps = 1 << 24;
constexpr double kFlatClockHz = 5e6;  // "flat": two successive rounds this close
constexpr int kMaxRestarts = 5;
constexpr double kBetweenSigns_s = 1;
constexpr int kRehearsals = 8;  // two find a full hold, two that it is too short; then what fits, and two to spare

class Sampler {
 public:
  Sampler(const std::vector<ArmRunner*>& runners, const std::vector<Clock>& clocks, bool against_first,
          const MakePlan& make_plan, const SamplingHooks& hooks)
      : runners_(runners),
        clocks_(clocks),
        against_first_(against_first),
        make_plan_(make_plan),
        hooks_(hooks),
        plan_(make_plan({})),
        step_s_(runners.size()),
        taken_s_(runners.size()),
        values_(runners.size()) {
    samples_.arms.resize(runners.size());
  }

  Samples sample() {
    calibrate_all();
    warm_up();
    plan_ = make_plan_(times_s());
    rehearse();
    BlockOrder order(static_cast<int>(runners_.size()), plan_.seed);
    double start_s = now_s();
    while (!finished(now_s() - start_s)) {
      take_block(order.next());
      if (pace_changed()) {
        start_over();
        start_s = now_s();
      }
    }
    samples_.planned_blocks = plan_.min_blocks;
    samples_.rest_s = plan_.rest_s;
    return std::move(samples_);
  }

 private:
  void tell(const std::string& what) const {
    if (hooks_.tell) hooks_.tell(what);
  }

  // Once a second: more often would only wake who listens, beside the windows.
  void tell_block() {
    if (now_s() - told_s_ < kBetweenSigns_s) return;
    told_s_ = now_s();
    tell("block " + std::to_string(samples_.blocks.size() + 1) + " of at least " + std::to_string(plan_.min_blocks));
  }

  void calibrate_all() {
    for (std::size_t arm = 0; arm < runners_.size(); ++arm) {
      tell("calibrating arm " + std::to_string(arm + 1) + " of " + std::to_string(runners_.size()));
      calibrate(arm);
    }
  }

  void calibrate(std::size_t arm) {
    const double start_s = now_s();
    std::int64_t steps = 1;
    double step_s = 0;
    runners_[arm]->run(0, 1);  // may load code: its time is not used
    if (now_s() - start_s > kBetweenSigns_s) tell("calibrating arm " + std::to_string(arm + 1) + ", which takes long");
    for (;;) {
      const double window_s = std::max(1e-9, judged_s(runners_[arm]->run(0, steps), clocks_[arm]));
      step_s = window_s / static_cast<double>(steps);
      const std::int64_t most = std::min(kMaxSteps, runners_[arm]->max_steps());
      if (window_s >= plan_.window_s / 4 || steps >= most) break;
      const double wanted = plan_.window_s / 2 / step_s;
      steps = std::min(most, std::clamp(static_cast<std::int64_t>(wanted), 2 * steps, 16 * steps));
    }
    set_steps(arm, step_s);
    samples_.lead_in_s += now_s() - start_s;
  }

  void set_steps(std::size_t arm, double step_s) {
    auto& samples = samples_.arms[arm];
    const std::int64_t most = std::min(kMaxSteps, runners_[arm]->max_steps());
    step_s_[arm] = step_s;
    samples.steps_per_window =
        std::clamp(static_cast<std::int64_t>(std::ceil(1.05 * plan_.window_s / step_s)), std::int64_t{1}, most);
    samples.lead_in_steps = 0;
    if (runners_[arm]->begins_afresh()) return;
    const std::int64_t least = runners_[arm]->least_lead_in();
    const bool is_long = clocks_[arm] == Clock::kHost && step_s > plan_.window_s / 2;
    samples.lead_in_steps = least;
    if (is_long) return;
    samples.lead_in_steps = std::clamp(static_cast<std::int64_t>(std::ceil(plan_.lead_in_s / step_s)),
                                       std::max(least, std::int64_t{1}), std::max(least, most));
  }

  // The clock is low when the device was idle, so calibration saw slow steps: warm up, then take the fastest pace seen.
  // The last one may be slower than what follows, and a window would come out too short.
  void warm_up() {
    const double start_s = now_s();
    std::vector<double> clock_hz(runners_.size(), 0);
    std::vector<double> fastest_step_s(runners_.size(), std::numeric_limits<double>::infinity());
    for (bool flat = false; !flat;) {
      flat = true;
      for (std::size_t arm = 0; arm < runners_.size(); ++arm) {
        tell("warming up arm " + std::to_string(arm + 1) + " of " + std::to_string(runners_.size()));
        const Window window = warm_up_arm(arm, fastest_step_s[arm]);
        const double hz = window.sm_clock_hz.value_or(0);
        flat = flat && std::abs(hz - clock_hz[arm]) <= kFlatClockHz;
        clock_hz[arm] = hz;
      }
      if (now_s() - start_s >= plan_.warm_up_limit_s) break;
    }
    samples_.lead_in_s += now_s() - start_s;
  }

  Window warm_up_arm(std::size_t arm, double& fastest_step_s) {
    const double until_s = now_s() + plan_.warm_up_s;
    Window window;
    do {
      const auto& samples = samples_.arms[arm];
      const std::int64_t steps = std::max({std::int64_t{1}, samples.lead_in_steps, samples.steps_per_window / 4});
      const double start_s = now_s();
      window = runners_[arm]->run(0, std::min(steps, runners_[arm]->max_steps()));
      taken_s_[arm] = runners_[arm]->begins_afresh() ? now_s() - start_s : 0;
      fastest_step_s = std::min(fastest_step_s, pace_s(arm, window, steps));
      set_steps(arm, fastest_step_s);
    } while (now_s() < until_s);
    return window;
  }

  // A window that is too long to be queued behind the holding kernel shows it only when it is tried as planned. Long
  // windows are spared: what keeps their warm-up, a quarter as long, from being held is seen there.
  void rehearse() {
    if (plan_.warm_up_limit_s > 0) return;
    const double start_s = now_s();
    for (std::size_t arm = 0; arm < runners_.size(); ++arm) {
      for (int i = 0; i < kRehearsals && clocks_[arm] == Clock::kDevice; ++i) {
        const std::int64_t steps = samples_.arms[arm].steps_per_window;
        const Window window = runners_[arm]->run(samples_.arms[arm].lead_in_steps, steps);
        if (window.held) break;
        set_steps(arm, pace_s(arm, window, steps));
      }
    }
    samples_.lead_in_s += now_s() - start_s;
  }

  /// Seconds that a step takes of the case's time: with the untimed work around it, where each window has its own.
  std::vector<double> times_s() const {
    std::vector<double> times_s = step_s_;
    for (std::size_t arm = 0; arm < times_s.size(); ++arm) times_s[arm] = std::max(times_s[arm], taken_s_[arm]);
    return times_s;
  }

  /// Seconds per step.
  double pace_s(std::size_t arm, const Window& window, std::int64_t steps) const {
    return std::max(1e-9, judged_s(window, clocks_[arm])) / static_cast<double>(steps);
  }

  // The logarithm of a time that is zero or no number would make the interval look certain.
  static void require_usable(double window_s) {
    if (!std::isfinite(window_s) || window_s <= 0) {
      throw std::runtime_error("a window took " + std::to_string(window_s) +
                               " s: the clock that judges it is of no use");
    }
  }

  void take_block(const Block& block) {
    const double start_s = now_s();
    std::vector<std::pair<int, Window>> windows;
    for (const int arm : block) {
      tell_block();
      windows.emplace_back(arm, take_window(static_cast<std::size_t>(arm)));
    }
    if (hooks_.disturbed && hooks_.disturbed(start_s, now_s())) {
      ++samples_.discarded_blocks;
      return;
    }
    std::vector<double> log_s(runners_.size(), 0);  // mean over the arm's two windows
    for (const auto& [arm, window] : windows) {
      const auto index = static_cast<std::size_t>(arm);
      const double window_s = judged_s(window, clocks_[index]);
      require_usable(window_s);
      const double step_s = window_s / static_cast<double>(samples_.arms[index].steps_per_window);
      log_s[index] += std::log(step_s) / 2;
      samples_.arms[index].windows.push_back(window);
    }
    samples_.blocks.push_back(block);
    const double base = against_first_ ? log_s[0] : 0;
    for (std::size_t arm = 0; arm < runners_.size(); ++arm) values_[arm].push_back(log_s[arm] - base);
    samples_.half_width = half_width();
  }

  // A device or link that was asleep can be many times slower at first than it is once awake (seen: 1 ms for a copy of
  // 25 us), long enough to outlast the warm-up. Windows that come out far too short tell: the number of steps was
  // wrong.
  bool pace_changed() const {
    if (samples_.blocks.empty() || samples_.restarts == kMaxRestarts) return false;
    for (std::size_t arm = 0; arm < runners_.size(); ++arm) {
      const auto& samples = samples_.arms[arm];
      const bool could_be_longer = samples.steps_per_window < std::min(kMaxSteps, runners_[arm]->max_steps());
      if (could_be_longer && judged_s(samples.windows.back(), clocks_[arm]) < plan_.window_s / 2) return true;
    }
    return false;
  }

  void start_over() {
    ++samples_.restarts;
    samples_.blocks.clear();
    samples_.half_width.reset();
    for (std::size_t arm = 0; arm < runners_.size(); ++arm) {
      values_[arm].clear();
      samples_.arms[arm].windows.clear();
    }
    calibrate_all();
    plan_ = make_plan_(times_s());
    rehearse();
  }

  Window take_window(std::size_t arm) {
    const auto& samples = samples_.arms[arm];
    const double start_s = now_s();
    if (plan_.rest_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(plan_.rest_s));
    Window window = runners_[arm]->run(samples.lead_in_steps, samples.steps_per_window);
    samples_.windows_s += window.host_s;
    samples_.lead_in_s += std::max(0.0, now_s() - start_s - window.host_s);
    return window;
  }

  std::optional<double> half_width() const {
    double widest = 0;
    for (std::size_t arm = against_first_ ? 1 : 0; arm < values_.size(); ++arm) {
      const auto width = median_half_width(values_[arm], kConfidence);
      if (!width) return std::nullopt;
      widest = std::max(widest, *width);
    }
    return widest;
  }

  bool finished(double elapsed_s) {
    const int blocks = static_cast<int>(samples_.blocks.size());
    if (blocks >= plan_.min_blocks && samples_.half_width && *samples_.half_width <= plan_.precision) {
      samples_.stop_reason = StopReason::kPrecise;
      return true;
    }
    // A disturbed device may never give a clean block: the budget ends it all the same.
    const bool enough = blocks >= plan_.min_blocks || elapsed_s >= plan_.limit_s;
    return elapsed_s >= plan_.budget_s && enough;
  }

  const std::vector<ArmRunner*>& runners_;
  const std::vector<Clock>& clocks_;
  bool against_first_;
  const MakePlan& make_plan_;
  const SamplingHooks& hooks_;
  SamplingPlan plan_;
  double told_s_ = 0;
  std::vector<double> step_s_;               // per arm, at the fastest pace seen
  std::vector<double> taken_s_;              // per arm that begins afresh, a window with all around it; else 0
  std::vector<std::vector<double>> values_;  // per arm, one per kept block
  Samples samples_;
};

}  // namespace

double judged_s(const Window& window, Clock clock) {
  if (clock == Clock::kHost) return window.host_s;
  if (!window.device_s)
    throw std::logic_error("an arm is judged by the device clock, but the window has no device time");
  return *window.device_s;
}

Samples sample_arms(const std::vector<ArmRunner*>& runners, const std::vector<Clock>& clocks, bool against_first,
                    const MakePlan& make_plan, const SamplingHooks& hooks) {
  if (runners.empty() || runners.size() != clocks.size())
    throw std::logic_error("one clock per arm, and at least one arm");
  return Sampler(runners, clocks, against_first && runners.size() > 1, make_plan, hooks).sample();
}

}  // namespace gpulift
