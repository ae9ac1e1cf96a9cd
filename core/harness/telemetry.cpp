#include "telemetry.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace gpulift {
namespace {

struct Quantity {
  const char* name;
  std::optional<double> GpuSample::* value;
};

constexpr Quantity kQuantities[] = {
    {"sm_clock_hz", &GpuSample::sm_clock_hz},
    {"memory_clock_hz", &GpuSample::memory_clock_hz},
    {"power_w", &GpuSample::power_w},
    {"temperature_c", &GpuSample::temperature_c},
    {"gpu_utilisation", &GpuSample::gpu_utilisation},
    {"tensor_activity", &GpuSample::tensor_activity},
    {"sm_activity", &GpuSample::sm_activity},
    {"dram_activity", &GpuSample::dram_activity},
    {"nvjpg_activity", &GpuSample::nvjpg_activity},
    {"pcie_rx_bytes_per_s", &GpuSample::pcie_rx_bytes_per_s},
    {"pcie_tx_bytes_per_s", &GpuSample::pcie_tx_bytes_per_s},
    {"nvlink_rx_bytes_per_s", &GpuSample::nvlink_rx_bytes_per_s},
    {"nvlink_tx_bytes_per_s", &GpuSample::nvlink_tx_bytes_per_s},
};

template <typename Value>
std::vector<Value> present(const std::vector<GpuSample>& samples, std::optional<Value> GpuSample::* value) {
  std::vector<Value> values;
  for (const auto& sample : samples) {
    if (sample.*value) values.push_back(*(sample.*value));
  }
  return values;
}

/// Not a reported statistic but a label of the case: an actual reading (the upper of the two middle ones).
nlohmann::ordered_json spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {{"min", values.front()}, {"median", values[values.size() / 2]}, {"max", values.back()}};
}

std::optional<double> energy_j(const std::vector<GpuSample>& samples) {
  const auto readings = present(samples, &GpuSample::energy_j);
  if (readings.size() < 2) return {};
  return readings.back() - readings.front();
}

/// What held the clock down in any of the samples that know.
std::optional<unsigned long long> throttle_reasons(const std::vector<GpuSample>& samples) {
  const auto known = present(samples, &GpuSample::throttle_reasons);
  if (known.empty()) return {};
  return std::reduce(known.begin(), known.end(), 0ULL, std::bit_or<>());
}

/// A sample that is the first to show a new value of the energy counter.
struct EnergyUpdate {
  double time_s;
  double energy_j;
  double unsure_s;  // it came at most this long before
};

std::vector<EnergyUpdate> energy_updates(const std::deque<GpuSample>& samples, double from_s, double to_s) {
  std::vector<EnergyUpdate> updates;
  const GpuSample* before = nullptr;
  for (const auto& sample : samples) {
    if (!sample.energy_j) continue;
    const bool inside = sample.time_s >= from_s && sample.time_s <= to_s;
    if (inside && before != nullptr && *sample.energy_j != *before->energy_j) {
      updates.push_back({sample.time_s, *sample.energy_j, sample.time_s - before->time_s});
    }
    before = &sample;
  }
  return updates;
}

constexpr std::size_t kEnergyUpdates = 8;
constexpr double kEnergyUnsure = 0.05;

constexpr std::size_t kSlopeSamples = 10;  // fewer, or over a shorter time, say nothing: readings are whole degrees
constexpr double kSlopeSpan_s = 1;

/// Slope of the least-squares line through the temperatures over time.
std::optional<double> temperature_slope_c_per_s(const std::vector<GpuSample>& samples) {
  std::vector<std::pair<double, double>> readings;  // seconds and degrees
  for (const auto& sample : samples) {
    if (sample.temperature_c) readings.emplace_back(sample.time_s, *sample.temperature_c);
  }
  if (readings.size() < kSlopeSamples || readings.back().first - readings.front().first < kSlopeSpan_s) return {};
  const auto count = static_cast<double>(readings.size());
  double mean_s = 0;
  double mean_c = 0;
  for (const auto& [time_s, temperature_c] : readings) {
    mean_s += time_s / count;
    mean_c += temperature_c / count;
  }
  double products = 0;
  double squares = 0;
  for (const auto& [time_s, temperature_c] : readings) {
    products += (time_s - mean_s) * (temperature_c - mean_c);
    squares += (time_s - mean_s) * (time_s - mean_s);
  }
  return products / squares;
}

void add_fastest(nlohmann::ordered_json& to, const char* name, const std::vector<int>& values) {
  if (!values.empty()) to[name] = *std::max_element(values.begin(), values.end());
}

}  // namespace

Telemetry::Telemetry(std::function<GpuSample()> source, double interval_s)
    : source_(std::move(source)),
      interval_s_(interval_s),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void Telemetry::run(const std::stop_token& stop) {
  const auto interval =
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(interval_s_));
  auto next = std::chrono::steady_clock::now();
  while (!stop.stop_requested()) {
    const GpuSample sample = source_();  // outside the lock: a driver call may take milliseconds
    std::unique_lock lock(mutex_);
    samples_.push_back(sample);
    next = std::max(next + interval, std::chrono::steady_clock::now());  // late samples are not made up for
    wake_.wait_until(lock, stop, next, [] { return false; });
  }
}

std::vector<GpuSample> Telemetry::between(double from_s, double to_s) const {
  std::vector<GpuSample> found;
  const std::scoped_lock lock(mutex_);
  std::copy_if(samples_.begin(), samples_.end(), std::back_inserter(found),
               [&](const GpuSample& sample) { return sample.time_s >= from_s && sample.time_s <= to_s; });
  return found;
}

nlohmann::ordered_json Telemetry::summary(double from_s, double to_s) const {
  const auto samples = between(from_s, to_s);
  nlohmann::ordered_json summary{{"samples", samples.size()}, {"interval_s", interval_s_}};
  for (const auto& [name, value] : kQuantities) {
    if (auto values = present(samples, value); !values.empty()) summary[name] = spread(std::move(values));
  }
  if (const auto slope = temperature_slope_c_per_s(samples)) summary["temperature_slope_c_per_s"] = *slope;
  if (const auto energy = energy_j(samples)) summary["energy_j"] = *energy;
  if (const auto reasons = throttle_reasons(samples)) summary["throttle"] = throttle_names(*reasons);
  add_fastest(summary, "pcie_generation", present(samples, &GpuSample::pcie_generation));
  add_fastest(summary, "pcie_width", present(samples, &GpuSample::pcie_width));
  return summary;
}

unsigned long long Telemetry::throttle_between(double from_s, double to_s) const {
  const std::scoped_lock lock(mutex_);
  unsigned long long before = 0;
  unsigned long long during = 0;
  for (const auto& sample : samples_) {
    if (sample.time_s < from_s) before = sample.throttle_reasons.value_or(0);
    if (sample.time_s >= from_s && sample.time_s <= to_s) during |= sample.throttle_reasons.value_or(0);
  }
  return before | during;
}

std::optional<double> Telemetry::energy_between(double from_s, double to_s) const {
  return energy_j(between(from_s, to_s));
}

std::optional<double> Telemetry::energy_within(double from_s, double to_s) const {
  const std::scoped_lock lock(mutex_);
  const auto updates = energy_updates(samples_, from_s, to_s);
  if (updates.size() < kEnergyUpdates) return {};
  const auto& first = updates.front();
  const auto& last = updates.back();
  const double span_s = last.time_s - first.time_s;
  const double taken_j = last.energy_j - first.energy_j;
  const bool was_reset = taken_j < 0;
  if (was_reset || std::max(first.unsure_s, last.unsure_s) > kEnergyUnsure * span_s) return {};
  return taken_j / span_s * (to_s - from_s);
}

std::optional<GpuSample> Telemetry::latest() const {
  const std::scoped_lock lock(mutex_);
  if (samples_.empty()) return {};
  return samples_.back();
}

void Telemetry::forget_before(double time_s) {
  const std::scoped_lock lock(mutex_);
  while (samples_.size() > 1 && samples_[1].time_s < time_s) samples_.pop_front();
}

}  // namespace gpulift
