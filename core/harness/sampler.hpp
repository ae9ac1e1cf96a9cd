#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "technique.hpp"
#include "window.hpp"

namespace gpulift {

/// How one case is sampled. Times in seconds.
struct SamplingPlan {
  double window_s = 1e-3;   // a window lasts at least this long
  double lead_in_s = 1e-4;  // untimed steps of the same arm before each window, at least one step; none where the
                            // wall clock judges a step of more than half a window: it would double the time (ranks have
                            // one all the same), and where windows begin afresh
  double rest_s = 0;        // idle before each lead-in
  double warm_up_s = 0.02;  // per arm, before the first block
  double warm_up_limit_s = 0;   // > 0: warm up until the SM clock is flat, at most this long in all
  double budget_s = 0.6;        // for all blocks together
  double limit_s = 1.8;         // the blocks end here, even before there are min_blocks
  bool limits_windows = false;  // the limit is of the time in windows, whatever is around them
  /// Arms that rest are visited twice, in an order and then in the same one backwards, and take all windows of a visit
  /// awake. Not where an arm is within kAlternatedBelow of the first: drift that is not linear may be as large.
  bool visits = false;
  double visit_lead_in_s = 0.3;    // untimed steps at the beginning of a visit
  std::vector<double> items = {};  // of a step of each arm, where the judge holds arms against each other per item
  double precision = 0.0025;       // stop when the interval's half-width is below
  int min_blocks = 8;              // before the interval may stop it, and taken unless the limit comes first
  std::uint64_t seed = 0;
};

/// Of the first arm's time. Between two visits an arm was seen to change by 0.14 % in the median, 0.95 % in one of ten.
inline constexpr double kAlternatedBelow = 0.02;

struct ArmSamples {
  std::int64_t steps_per_window = 1;
  std::int64_t lead_in_steps = 1;
  std::vector<Window> windows;  // of the kept blocks, in order
};

enum class StopReason { kPrecise, kBudget };

struct Samples {
  std::vector<ArmSamples> arms;
  std::vector<Block> blocks;
  /// Which arm each visit was of; empty where blocks followed each other. Of visits a block has an arm's k-th window of
  /// the first one and its k-th from the end of the second, so that linear drift cancels in it as well.
  Block visits = {};
  int dropped_visits = 0;    // blocks of visits that alternating ones replaced, since an effect came out small
  int discarded_blocks = 0;  // dropped because the hardware slowed down in them
  int planned_blocks = 0;    // the least number of the plan
  double rest_s = 0;         // that the plan had
  int restarts = 0;          // how often everything was dropped, because the number of steps had proved wrong
  StopReason stop_reason = StopReason::kBudget;
  std::optional<double> half_width;  // of the least certain arm, as a fraction
  double windows_s = 0;              // host time inside timed windows
  double lead_in_s = 0;              // in rests, lead-ins, calibration and warm-up
  double wake_s = 0;                 // in which arms that rest gave up memory and brought it back
};

/// The plan for arms whose steps take so long, in seconds, in the order of the arms; it is asked without any before the
/// arms are calibrated, and then again.
using MakePlan = std::function<SamplingPlan(std::span<const double> step_s)>;

/// What a case hears and says while it is sampled. Each may be empty.
struct SamplingHooks {
  std::function<bool(double from_s, double to_s)>
      disturbed;                                      // true: what happened between the two moments spoils a block
  std::function<void(const std::string& what)> tell;  // what is being done: "block 3 of at least 8"
};

/// Calibrates, warms up and samples the arms in balanced blocks, or in visits. `clocks` says which clock judges each
/// arm. With one arm, and for ceilings, the stop rule looks at the arm's own time; else at its ratio to the first arm.
Samples sample_arms(const std::vector<ArmRunner*>& runners, const std::vector<Clock>& clocks, bool against_first,
                    const MakePlan& make_plan, const SamplingHooks& hooks);

/// The time of a window by the clock that judges the arm; throws std::logic_error when it was not measured.
double judged_s(const Window& window, Clock clock);

}  // namespace gpulift
