#pragma once

#include <utility>

#include "technique.hpp"
#include "window.hpp"

namespace gpulift {

/// Runs an arm that needs no device: its steps are done when they return.
class HostRunner : public ArmRunner {
 public:
  explicit HostRunner(Step step) : step_(std::move(step)) {}

  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    for (std::int64_t i = 0; i < lead_in_steps; ++i) step_(nullptr);
    Window window;
    window.start_s = now_s();
    for (std::int64_t i = 0; i < steps; ++i) step_(nullptr);
    window.host_s = now_s() - window.start_s;
    window.enqueue_s = window.host_s;
    return window;
  }

 private:
  Step step_;
};

}  // namespace gpulift
