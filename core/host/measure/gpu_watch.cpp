#include "gpu_watch.hpp"

#include <algorithm>

#include "hardware_slowdown.hpp"

namespace gpulift {
namespace {

/// The device's part of a window: the host's time of it holds the lead-in that ran with it.
double begin_s(const Window& window) {
  return window.start_s + window.host_s - window.device_s.value_or(window.host_s);
}

}  // namespace

GpuWatch::GpuWatch(const LaunchContext& launch, std::size_t gpus, bool uses_device)
    : missing_(uses_device ? launch.telemetry_missing : "no device in this case") {
  if (uses_device) watched_ = std::span(launch.telemetry).first(std::min(gpus, launch.telemetry.size()));
}

bool GpuWatch::slowed_by_hardware(double from_s, double to_s) const {
  return std::any_of(watched_.begin(), watched_.end(),
                     [&](const Telemetry* gpu) { return is_hardware_slowdown(gpu->throttle_between(from_s, to_s)); });
}

std::optional<double> GpuWatch::energy_within(const Window& window, int ranks) const {
  const auto used = static_cast<std::size_t>(ranks);
  if (watched_.empty() || used > watched_.size()) return std::nullopt;  // of another host's GPU nothing is known
  double sum_j = 0;
  for (const Telemetry* gpu : watched_.first(used)) {
    const auto taken_j = gpu->energy_within(begin_s(window), window.start_s + window.host_s);
    if (!taken_j) return std::nullopt;
    sum_j += *taken_j;
  }
  return sum_j;
}

void GpuWatch::keep(CaseRecord& record, double from_s, double to_s) const {
  if (watched_.empty()) {
    record.telemetry_missing = missing_;
    return;
  }
  record.telemetry = watched_.front()->summary(from_s, to_s);
  for (const Telemetry* gpu : watched_.subspan(1)) record.telemetry_others.push_back(gpu->summary(from_s, to_s));
  for (Telemetry* gpu : watched_) gpu->forget_before(to_s);
}

}  // namespace gpulift
