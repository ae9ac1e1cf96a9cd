#include "sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>

#include "pacing.hpp"
#include "stop_rule.hpp"

namespace gpulift {
namespace {

constexpr double kConfidence = 0.975;  // covers 95 % although it is looked at after every block
constexpr double kFlatClockHz = 5e6;   // "flat": two successive rounds this close
constexpr int kMaxRestarts = 5;
constexpr int kVisits = 2;  // of an arm

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
        values_(runners.size()),
        pacing_(runners, clocks, plan_, samples_.arms) {
    samples_.arms.resize(runners.size());
  }

  Samples sample() {
    const double begun_s = now_s();
    calibrate_all();
    if (!warms_up_at_once()) warm_up();
    plan_ = make_plan_(pacing_.times_s());
    pacing_.rehearse();
    BlockOrder order(static_cast<int>(runners_.size()), plan_.seed);
    if (!plan_.visits || has_small_effect(logs_of(pacing_.step_s())) || !visit(order)) alternate(order);
    samples_.planned_blocks = plan_.min_blocks;
    samples_.rest_s = plan_.rest_s;
    samples_.lead_in_s = std::max(0.0, now_s() - begun_s - samples_.windows_s - samples_.wake_s);
    return std::move(samples_);
  }

 private:
  void tell(const std::string& what) const {
    if (hooks_.tell) hooks_.tell(what);
  }

  // Once a second: more often would only wake who listens, beside the windows.
  template <typename Text>
  void tell_now_and_then(const Text& text) {
    if (now_s() - told_s_ < kBetweenSigns_s) return;
    told_s_ = now_s();
    tell(text());
  }

  void alternate(BlockOrder& order) {
    double start_s = now_s();
    limited_s_ = 0;
    while (!finished(now_s() - start_s)) {
      take_block(order.next());
      if (pace_changed()) {
        start_over();
        start_s = now_s();
      }
    }
  }

  /// False, and all is dropped, where an effect comes out small.
  bool visit(BlockOrder& order) {
    take_visits(order.next());
    while (pace_changed()) {
      start_over();
      take_visits(order.next());
    }
    if (!samples_.blocks.empty() && has_small_effect(medians())) {
      samples_.dropped_visits = static_cast<int>(samples_.blocks.size());
      drop();
      return false;
    }
    if (samples_.half_width && *samples_.half_width <= plan_.precision) samples_.stop_reason = StopReason::kPrecise;
    return true;
  }

  /// Of logarithms of times, one per arm: whether one is hardly faster or slower than the first or the one before it,
  /// of which a ladder's steps are.
  bool has_small_effect(std::vector<double> log_s) const {
    if (!against_first_) return false;
    for (std::size_t arm = 0; arm < plan_.items.size(); ++arm) log_s[arm] -= std::log(plan_.items[arm]);
    const auto is_small = [](double first, double other) {
      return std::abs(std::expm1(other - first)) < kAlternatedBelow;
    };
    for (std::size_t arm = 1; arm < log_s.size(); ++arm) {
      if (is_small(log_s.front(), log_s[arm]) || is_small(log_s[arm - 1], log_s[arm])) return true;
    }
    return false;
  }

  static std::vector<double> logs_of(std::vector<double> times_s) {
    for (double& time_s : times_s) time_s = std::log(time_s);
    return times_s;
  }

  std::vector<double> medians() const {
    std::vector<double> middles;
    for (const auto& values : values_) middles.push_back(median(values));
    return middles;
  }

  void wake(std::size_t arm) {
    time_of_waking(arm, [&] { runners_[arm]->wake(); });
  }
  void rest(std::size_t arm) {
    time_of_waking(arm, [&] { runners_[arm]->rest(); });
  }

  template <typename Change>
  void time_of_waking(std::size_t arm, const Change& change) {
    if (!runners_[arm]->rests()) return;
    const double start_s = now_s();
    change();
    samples_.wake_s += now_s() - start_s;
  }

  /// Arm by arm, so that none has to wake twice. Not where the clock has to be flat, which takes rounds.
  bool warms_up_at_once() const {
    return plan_.warm_up_limit_s == 0 &&
           std::any_of(runners_.begin(), runners_.end(), [](const ArmRunner* arm) { return arm->rests(); });
  }

  void calibrate_all() {
    for (std::size_t arm = 0; arm < runners_.size(); ++arm) {
      tell("calibrating arm " + std::to_string(arm + 1) + " of " + std::to_string(runners_.size()));
      wake(arm);
      pacing_.calibrate(arm, [this](const std::string& what) { tell(what); });
      double fastest_step_s = std::numeric_limits<double>::infinity();
      if (warms_up_at_once()) pacing_.warm_up(arm, fastest_step_s);
      rest(arm);
    }
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
        wake(arm);
        const Window window = pacing_.warm_up(arm, fastest_step_s[arm]);
        rest(arm);
        const double hz = window.sm_clock_hz.value_or(0);
        flat = flat && std::abs(hz - clock_hz[arm]) <= kFlatClockHz;
        clock_hz[arm] = hz;
      }
      if (now_s() - start_s >= plan_.warm_up_limit_s) break;
    }
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
    std::vector<Window> windows;
    for (const int place : block) {
      const auto arm = static_cast<std::size_t>(place);
      tell_now_and_then([&] {
        return "block " + std::to_string(samples_.blocks.size() + 1) + " of at least " +
               std::to_string(plan_.min_blocks);
      });
      wake(arm);
      windows.push_back(take_window(arm));
      rest(arm);
    }
    keep_block(block, windows, is_disturbed(start_s));
  }

  bool is_disturbed(double since_s) const { return hooks_.disturbed && hooks_.disturbed(since_s, now_s()); }

  struct Visit {
    std::vector<Window> windows = {};
    std::vector<bool> disturbed = {};  // of each window, with what was ahead of it
  };

  void take_visits(const Block& order) {
    const std::size_t blocks = blocks_of_visits();
    std::vector<std::vector<Visit>> visits(runners_.size());
    for (std::size_t place = 0; place < order.size(); ++place) {
      tell_now_and_then([&] { return "visit " + std::to_string(place + 1) + " of " + std::to_string(order.size()); });
      const auto arm = static_cast<std::size_t>(order[place]);
      visits[arm].push_back(visit_of(arm, blocks));
    }
    for (std::size_t block = 0; block < blocks; ++block) {
      std::vector<Window> windows;
      bool disturbed = false;
      for (std::size_t place = 0; place < order.size(); ++place) {
        const bool comes_again = place >= order.size() / kVisits;
        const Visit& visit = visits[static_cast<std::size_t>(order[place])][comes_again ? 1 : 0];
        const std::size_t turn = comes_again ? blocks - 1 - block : block;
        windows.push_back(visit.windows[turn]);
        disturbed = disturbed || visit.disturbed[turn];
      }
      keep_block(order, windows, disturbed);
    }
    samples_.visits = order;
  }

  Visit visit_of(std::size_t arm, std::size_t count) {
    Visit visit;
    wake(arm);
    double since_s = now_s();
    if (!runners_[arm]->begins_afresh()) {
      const auto steps = static_cast<std::int64_t>(std::ceil(plan_.visit_lead_in_s / pacing_.step_s()[arm]));
      runners_[arm]->run(0, std::clamp(steps, std::int64_t{1}, std::min(kMaxSteps, runners_[arm]->max_steps())));
    }
    for (std::size_t i = 0; i < count; ++i) {
      visit.windows.push_back(take_window(arm));
      visit.disturbed.push_back(is_disturbed(since_s));
      since_s = now_s();
    }
    rest(arm);
    return visit;
  }

  /// As many as are planned, or as the limit holds.
  std::size_t blocks_of_visits() const {
    const std::vector<double> arm_s = pacing_.times_s();
    double block_s = 0;
    for (std::size_t arm = 0; arm < arm_s.size(); ++arm)
      block_s += kVisits * arm_s[arm] * static_cast<double>(samples_.arms[arm].steps_per_window);
    const double most = std::clamp(plan_.limit_s / block_s, 1.0, static_cast<double>(plan_.min_blocks));
    return static_cast<std::size_t>(most);
  }

  void keep_block(const Block& block, const std::vector<Window>& windows, bool disturbed) {
    if (disturbed) {
      ++samples_.discarded_blocks;
      return;
    }
    std::vector<double> log_s(runners_.size(), 0);  // mean over the arm's two windows
    for (std::size_t place = 0; place < block.size(); ++place) {
      const auto index = static_cast<std::size_t>(block[place]);
      const Window& window = windows[place];
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

  void drop() {
    samples_.blocks.clear();
    samples_.visits.clear();
    samples_.half_width.reset();
    for (std::size_t arm = 0; arm < runners_.size(); ++arm) {
      values_[arm].clear();
      samples_.arms[arm].windows.clear();
    }
  }

  void start_over() {
    ++samples_.restarts;
    drop();
    limited_s_ = 0;
    calibrate_all();
    plan_ = make_plan_(pacing_.times_s());
    pacing_.rehearse();
  }

  Window take_window(std::size_t arm) {
    const auto& samples = samples_.arms[arm];
    const double start_s = now_s();
    if (plan_.rest_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(plan_.rest_s));
    Window window = runners_[arm]->run(samples.lead_in_steps, samples.steps_per_window);
    samples_.windows_s += window.host_s;
    limited_s_ += runners_[arm]->begins_afresh() ? now_s() - start_s : window.host_s;
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
    const double limited_s = plan_.limits_windows ? limited_s_ : elapsed_s;
    const bool enough = blocks >= plan_.min_blocks || limited_s >= plan_.limit_s;
    return elapsed_s >= plan_.budget_s && enough;
  }

  const std::vector<ArmRunner*>& runners_;
  const std::vector<Clock>& clocks_;
  bool against_first_;
  const MakePlan& make_plan_;
  const SamplingHooks& hooks_;
  SamplingPlan plan_;
  double told_s_ = 0;
  double limited_s_ = 0;                     // in windows, with the untimed work that those of one step need
  std::vector<std::vector<double>> values_;  // per arm, one per kept block
  Samples samples_;
  Pacing pacing_;
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
