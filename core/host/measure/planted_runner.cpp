#include "planted_runner.hpp"

#include "core/harness/sampler.hpp"
#include "core/harness/stop_rule.hpp"

namespace gpulift {
namespace {

class HostWork : public ExtraWork {
 public:
  void add(double work_s, std::optional<double> /*sm_clock_hz*/) override {
    const double start_s = now_s();
    while (now_s() - start_s < work_s) {
    }
    added_s_ = now_s() - start_s;
  }
  double added_s(std::optional<double> /*sm_clock_hz*/) const override { return added_s_; }

 private:
  double added_s_ = 0;
};

}  // namespace

std::unique_ptr<ExtraWork> make_host_work() { return std::make_unique<HostWork>(); }

PlantedRunner::PlantedRunner(const Work& work, Clock clock, double fraction, std::unique_ptr<ExtraWork> extra,
                             const MakeRunner& make)
    : clock_(clock), fraction_(fraction), extra_(std::move(extra)) {
  runner_ = make(work.with_step([step = work.step(), extra = extra_, plan = plan_](StreamHandle stream) {
    step(stream);
    if (--plan->steps_left == 0 && plan->work_s > 0) extra->add(plan->work_s, plan->sm_clock_hz);
  }));
}

Window PlantedRunner::run(std::int64_t lead_in_steps, std::int64_t steps) {
  plan_->steps_left = lead_in_steps + steps;
  plan_->work_s = step_s_ ? fraction_ * *step_s_ * static_cast<double>(steps) : 0;
  const Window window = runner_->run(lead_in_steps, steps);
  const double added_s = plan_->work_s > 0 ? extra_->added_s(window.sm_clock_hz) : 0;
  const double plain_s = judged_s(window, clock_) - added_s;
  if (plain_s > 0) {
    if (added_s > 0) fractions_.push_back(added_s / plain_s);
    step_s_ = plain_s / static_cast<double>(steps);
  } else {
    step_s_.reset();  // by its own count the extra work took it all: the next window tells anew, without any
  }
  plan_->sm_clock_hz = window.sm_clock_hz;
  return window;
}

std::optional<double> PlantedRunner::planted() const {
  return fractions_.empty() ? std::nullopt : std::optional(median(fractions_));
}

}  // namespace gpulift
