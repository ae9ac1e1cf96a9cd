#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/harness/technique.hpp"
#include "core/harness/window.hpp"

namespace gpulift {

/// Extra work that can be added behind a step: on the device by cycles of its clock, or on the host by seconds.
class ExtraWork {
 public:
  virtual ~ExtraWork() = default;
  /// Adds what will take about `work_s`, at the SM clock of the window before where there was one.
  virtual void add(double work_s, std::optional<double> sm_clock_hz) = 0;
  /// After the window: what was added really took, by its own count.
  virtual double added_s(std::optional<double> sm_clock_hz) const = 0;
};

/// Work on the host: the calling thread is busy until the time is over.
std::unique_ptr<ExtraWork> make_host_work();

/// Slows an arm down by a known fraction, to test what verdicts find: each window gets extra work behind its last step.
/// The first window gets none, since it tells how much a fraction of a window is.
class PlantedRunner : public ArmRunner {
 public:
  using MakeRunner = std::function<std::unique_ptr<ArmRunner>(Work)>;

  /// `clock` is the one that judges the arm; `make` makes the runner of the work with the extra in its step.
  PlantedRunner(const Work& work, Clock clock, double fraction, std::unique_ptr<ExtraWork> extra,
                const MakeRunner& make);

  Window run(std::int64_t lead_in_steps, std::int64_t steps) override;
  std::int64_t max_steps() const override { return runner_->max_steps(); }
  bool begins_afresh() const override { return runner_->begins_afresh(); }
  std::optional<double> launches_per_step() override { return runner_->launches_per_step(); }

  /// The median of all windows that had extra work, by that work's own count. None before there was one, and where
  /// that work seems to take longer than the window that it is in.
  std::optional<double> planted() const override;

 private:
  struct Plan {
    std::int64_t steps_left = 0;  // until the extra work is due
    double work_s = 0;
    std::optional<double> sm_clock_hz;
  };

  Clock clock_;
  double fraction_;
  std::shared_ptr<ExtraWork> extra_;
  std::shared_ptr<Plan> plan_ = std::make_shared<Plan>();
  std::unique_ptr<ArmRunner> runner_;
  std::optional<double> step_s_;
  std::vector<double> fractions_;
};

}  // namespace gpulift
