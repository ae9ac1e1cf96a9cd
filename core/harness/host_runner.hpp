#pragma once

#include <cmath>
#include <stdexcept>
#include <utility>

#include "cpu_time.hpp"
#include "technique.hpp"
#include "window.hpp"

namespace gpulift {

/// What comes between a window's lead-in and its first step. Returns what the arm's precondition saw, if it has one.
inline std::optional<double> begin_afresh(const Work& work) {
  work.do_before();
  if (!work.required()) return std::nullopt;
  const auto seen = work.required()->look();
  if (!seen || !std::isfinite(*seen)) throw std::runtime_error(work.required()->name + " can no longer be told");
  return seen;
}

/// Runs an arm that needs no device: its steps are done when they return.
class HostRunner : public ArmRunner {
 public:
  /// Whose processor time counts: this process's, or that of its child processes, too.
  enum class Counted { kProcess, kWithChildren };

  HostRunner(Work work, Counted counted) : work_(std::move(work)), with_children_(counted == Counted::kWithChildren) {}

  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    // Other processes are looked for ahead of the lead-in, so that no pause stands behind it, or behind `before`, which
    // may start some.
    CpuMeter cpu(with_children_);
    for (std::int64_t i = 0; i < lead_in_steps; ++i) work_.step()(nullptr);
    Window window;
    window.precondition = begin_afresh(work_);
    if (work_.has_before()) cpu = CpuMeter(with_children_);
    cpu.restart();
    window.start_s = now_s();
    for (std::int64_t i = 0; i < steps; ++i) work_.step()(nullptr);
    window.host_s = now_s() - window.start_s;
    window.cpu_s = cpu.used_s();
    window.enqueue_s = window.host_s;
    work_.do_rest();
    return window;
  }
  std::int64_t max_steps() const override { return work_.has_before() ? 1 : ArmRunner::max_steps(); }
  bool begins_afresh() const override { return work_.has_before(); }

 private:
  Work work_;
  bool with_children_;
};

}  // namespace gpulift
