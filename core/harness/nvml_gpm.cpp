// Activities and rates from the driver's GPU performance monitoring: differences of counters between two moments.

#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <type_traits>
#include <utility>

#include "nvml_card.hpp"

namespace gpulift {
namespace {

using nvml::Functions;
using nvml::kPercent;

constexpr double kMebibyte = 1024 * 1024;

struct GpmMetric {
  nvmlGpmMetricId_t metric;
  std::optional<double> GpuSample::* value;
  double unit;
};

constexpr std::array kGpmMetrics{
    GpmMetric{NVML_GPM_METRIC_ANY_TENSOR_UTIL, &GpuSample::tensor_activity, kPercent},
    GpmMetric{NVML_GPM_METRIC_SM_UTIL, &GpuSample::sm_activity, kPercent},
    GpmMetric{NVML_GPM_METRIC_DRAM_BW_UTIL, &GpuSample::dram_activity, kPercent},
    GpmMetric{NVML_GPM_METRIC_PCIE_RX_PER_SEC, &GpuSample::pcie_rx_bytes_per_s, kMebibyte},
    GpmMetric{NVML_GPM_METRIC_PCIE_TX_PER_SEC, &GpuSample::pcie_tx_bytes_per_s, kMebibyte},
    GpmMetric{NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, &GpuSample::nvlink_rx_bytes_per_s, kMebibyte},
    GpmMetric{NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, &GpuSample::nvlink_tx_bytes_per_s, kMebibyte},
};
constexpr std::size_t kJpegEngines = NVML_GPM_METRIC_NVJPG_7_UTIL - NVML_GPM_METRIC_NVJPG_0_UTIL + 1;

struct FreeCounters {
  decltype(nvmlGpmSampleFree)* free;
  void operator()(nvmlGpmSample_t counters) const { free(counters); }
};
/// The card's counters at one moment.
using Counters = std::unique_ptr<std::remove_pointer_t<nvmlGpmSample_t>, FreeCounters>;

Counters allocate(const Functions& functions) {
  nvmlGpmSample_t counters = nullptr;
  if (functions.gpm_sample_alloc(&counters) != NVML_SUCCESS) counters = nullptr;
  return Counters(counters, FreeCounters{functions.gpm_sample_free});
}

bool is_supported(const Functions& functions, nvmlDevice_t device) {
  if (functions.gpm_support == nullptr || functions.gpm_sample_alloc == nullptr ||
      functions.gpm_sample_free == nullptr || functions.gpm_sample_get == nullptr || functions.gpm_metrics == nullptr) {
    return false;
  }
  nvmlGpmSupport_t support{};
  support.version = NVML_GPM_SUPPORT_VERSION;
  return functions.gpm_support(device, &support) == NVML_SUCCESS && support.isSupportedDevice != 0;
}

std::optional<double> value_of(const nvmlGpmMetric_t& metric, double unit) {
  if (metric.nvmlReturn != NVML_SUCCESS || !std::isfinite(metric.value)) return {};
  return metric.value * unit;
}

/// Keeps the counters of the reading before. No setting of the card is changed.
class GpmSampler {
 public:
  /// `open` keeps the library open for as long as this lives.
  GpmSampler(std::shared_ptr<const void> open, const Functions& functions, nvmlDevice_t device, double interval_s)
      : open_(std::move(open)), functions_(functions), device_(device), interval_s_(interval_s) {
    if (!is_supported(functions, device)) return;
    before_ = allocate(functions);
    now_ = allocate(functions);
    metrics_.version = NVML_GPM_METRICS_GET_VERSION;
    const auto ask_for = [&](unsigned int metric) { metrics_.metrics[metrics_.numMetrics++].metricId = metric; };
    for (const auto& quantity : kGpmMetrics) ask_for(quantity.metric);
    for (unsigned int engine = 0; engine < kJpegEngines; ++engine) ask_for(NVML_GPM_METRIC_NVJPG_0_UTIL + engine);
  }

  /// Reads the counters if it is time to, and adds what they did since the reading before. What fails adds nothing.
  void add_to(GpuSample& sample) {
    const std::scoped_lock lock(mutex_);
    if (!before_ || !now_ || sample.time_s - tried_s_ < interval_s_) return;
    tried_s_ = sample.time_s;
    const bool had_before = std::exchange(has_before_, functions_.gpm_sample_get(device_, now_.get()) == NVML_SUCCESS);
    if (!has_before_) return;
    if (had_before) add_difference_to(sample);
    std::swap(before_, now_);
  }

 private:
  void add_difference_to(GpuSample& sample) {
    metrics_.sample1 = before_.get();
    metrics_.sample2 = now_.get();
    if (functions_.gpm_metrics(&metrics_) != NVML_SUCCESS) return;
    const nvmlGpmMetric_t* metric = metrics_.metrics;
    for (const auto& quantity : kGpmMetrics) sample.*quantity.value = value_of(*metric++, quantity.unit);
    double sum = 0;
    int engines = 0;
    for (std::size_t engine = 0; engine < kJpegEngines; ++engine) {
      if (const auto activity = value_of(*metric++, kPercent)) {
        sum += *activity;
        ++engines;
      }
    }
    if (engines > 0) sample.nvjpg_activity = sum / engines;
  }

  std::shared_ptr<const void> open_;  // first: the counters are freed before the library is closed
  const Functions& functions_;
  nvmlDevice_t device_;
  double interval_s_;
  std::mutex mutex_;
  Counters before_;  // null where the card has none
  Counters now_;
  bool has_before_ = false;
  double tried_s_ = -std::numeric_limits<double>::infinity();
  nvmlGpmMetricsGet_t metrics_{};
};

}  // namespace

std::function<GpuSample()> Nvml::sampling(double activity_interval_s) const {
  auto gpm = std::make_shared<GpmSampler>(card_, card_->functions, card_->device, activity_interval_s);
  return [card = *this, gpm = std::move(gpm)] {
    auto sample = card.sample();
    gpm->add_to(sample);
    return sample;
  };
}

}  // namespace gpulift
