#include <unistd.h>

#include <array>
#include <cstddef>

#include "nvml_card.hpp"

namespace gpulift {
namespace {

using nvml::Functions;
using nvml::get;
using nvml::kMegahertz;
using nvml::kMilli;
using nvml::scaled;

GpuHealth::Count ecc_errors(const Functions& functions, nvmlDevice_t device, nvmlMemoryErrorType_t type,
                            nvmlEccCounterType_t counter) {
  return get<unsigned long long>(functions.ecc_errors, device, type, counter);
}

GpuHealth::Ecc ecc(const Functions& functions, nvmlDevice_t device) {
  GpuHealth::Ecc ecc;
  nvmlEnableState_t current{};
  nvmlEnableState_t pending{};
  if (functions.ecc != nullptr && functions.ecc(device, &current, &pending) == NVML_SUCCESS) {
    ecc.enabled = current == NVML_FEATURE_ENABLED;
    ecc.pending = pending == NVML_FEATURE_ENABLED;
  }
  const auto errors = [&](nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter) {
    return ecc_errors(functions, device, type, counter);
  };
  ecc.corrected_volatile = errors(NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC);
  ecc.uncorrected_volatile = errors(NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC);
  ecc.corrected_aggregate = errors(NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_AGGREGATE_ECC);
  ecc.uncorrected_aggregate = errors(NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC);
  return ecc;
}

std::optional<GpuHealth::RowRemapping> row_remapping(const Functions& functions, nvmlDevice_t device) {
  unsigned int correctable = 0;
  unsigned int uncorrectable = 0;
  unsigned int pending = 0;
  unsigned int failure = 0;
  if (functions.remapped_rows == nullptr ||
      functions.remapped_rows(device, &correctable, &uncorrectable, &pending, &failure) != NVML_SUCCESS) {
    return {};
  }
  return GpuHealth::RowRemapping{correctable, uncorrectable, pending != 0, failure != 0};
}

std::optional<bool> enabled(nvml::GetState* function, nvmlDevice_t device) {
  const auto state = get<nvmlEnableState_t>(function, device);
  if (!state) return {};
  return *state == NVML_FEATURE_ENABLED;
}

/// The library numbers the versions one by one, minor ones included.
std::optional<int> nvlink_generation(std::optional<unsigned int> version) {
  constexpr std::array kGenerations{0, 1, 2, 2, 3, 3, 4, 5};  // 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0
  static_assert(kGenerations.size() == NVML_NVLINK_VERSION_5_0 + 1);
  if (!version || *version == NVML_NVLINK_VERSION_INVALID || *version >= kGenerations.size()) return {};
  return kGenerations[*version];
}

/// Fills in the counts of errors, as far as the driver tells them.
void count_errors(const Functions& functions, nvmlDevice_t device, GpuHealth::NvLink& link) {
  for (int counter = 0; counter < NVML_NVLINK_ERROR_COUNT; ++counter) {
    const auto count = get<unsigned long long>(functions.nvlink_errors, device, static_cast<unsigned int>(link.link),
                                               static_cast<nvmlNvLinkErrorCounter_t>(counter));
    if (!count) continue;
    link.errors = link.errors.value_or(0) + *count;
    const bool is_crc = counter == NVML_NVLINK_ERROR_DL_CRC_FLIT || counter == NVML_NVLINK_ERROR_DL_CRC_DATA;
    if (is_crc) link.crc_errors = link.crc_errors.value_or(0) + *count;
    if (counter == NVML_NVLINK_ERROR_DL_REPLAY) link.replays = *count;
    if (counter == NVML_NVLINK_ERROR_DL_ECC_DATA) link.ecc_errors = *count;
  }
}

std::vector<GpuHealth::NvLink> nvlinks(const Functions& functions, nvmlDevice_t device) {
  std::vector<GpuHealth::NvLink> links;
  for (unsigned int link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    const auto state = get<nvmlEnableState_t>(functions.nvlink_state, device, link);
    if (!state) continue;
    links.push_back({static_cast<int>(link),
                     *state == NVML_FEATURE_ENABLED,
                     nvlink_generation(get<unsigned int>(functions.nvlink_version, device, link)),
                     {},
                     {},
                     {},
                     {}});
    count_errors(functions, device, links.back());
  }
  return links;
}

std::optional<double> temperature_threshold_c(const Functions& functions, nvmlDevice_t device,
                                              nvmlTemperatureThresholds_t threshold) {
  return scaled(get<unsigned int>(functions.temperature_threshold, device, threshold), 1.0);
}

std::optional<double> temperature_margin_c(const Functions& functions, nvmlDevice_t device) {
  nvmlMarginTemperature_t margin{};
  margin.version = nvmlMarginTemperature_v1;
  if (functions.temperature_margin == nullptr || functions.temperature_margin(device, &margin) != NVML_SUCCESS) {
    return {};
  }
  return margin.marginTemperature;
}

std::optional<GpuHealth::Memory> memory(const Functions& functions, nvmlDevice_t device) {
  nvmlMemory_v2_t memory{};
  memory.version = nvmlMemory_v2;
  if (functions.memory == nullptr || functions.memory(device, &memory) != NVML_SUCCESS) return {};
  return GpuHealth::Memory{memory.total, memory.free, memory.used, memory.reserved};
}

std::optional<std::vector<GpuHealth::Process>> other_processes(const Functions& functions, nvmlDevice_t device) {
  constexpr std::size_t kMost = 1024;
  if (functions.processes == nullptr) return {};
  std::vector<nvmlProcessInfo_t> found(kMost);
  auto count = static_cast<unsigned int>(found.size());
  if (functions.processes(device, &count, found.data()) != NVML_SUCCESS || count > found.size()) return {};
  found.resize(count);
  std::vector<GpuHealth::Process> others;
  for (const nvmlProcessInfo_t& process : found) {
    if (process.pid == static_cast<unsigned int>(getpid())) continue;
    const bool known = process.usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE);
    others.push_back({process.pid, known ? GpuHealth::Count(process.usedGpuMemory) : std::nullopt});
  }
  return others;
}

std::string compute_mode(const Functions& functions, nvmlDevice_t device) {
  const auto mode = get<nvmlComputeMode_t>(functions.compute_mode, device);
  if (!mode) return {};
  switch (*mode) {
    case NVML_COMPUTEMODE_DEFAULT:
      return "default";
    case NVML_COMPUTEMODE_EXCLUSIVE_THREAD:
    case NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
      return "exclusive";
    case NVML_COMPUTEMODE_PROHIBITED:
      return "prohibited";
    default:
      return {};
  }
}

}  // namespace

GpuHealth Nvml::health() const {
  const auto& functions = card_->functions;
  auto* device = card_->device;
  GpuHealth health;
  health.facts = facts();
  health.now = sample();
  health.ecc = ecc(functions, device);
  health.row_remapping = row_remapping(functions, device);
  health.retired_pages_pending = enabled(functions.retired_pages_pending, device);
  health.pcie_replays = get<unsigned int>(functions.pcie_replays, device);
  health.nvlinks = nvlinks(functions, device);
  unsigned int min_mw = 0;
  unsigned int max_mw = 0;
  if (functions.power_limits != nullptr && functions.power_limits(device, &min_mw, &max_mw) == NVML_SUCCESS) {
    health.min_power_limit_w = min_mw * kMilli;
    health.max_power_limit_w = max_mw * kMilli;
  }
  health.application_sm_clock_hz =
      scaled(get<unsigned int>(functions.application_clock, device, NVML_CLOCK_SM), kMegahertz);
  health.throttle_reasons = get<unsigned long long>(functions.throttle, device);
  health.slowdown_temperature_c = temperature_threshold_c(functions, device, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN);
  health.shutdown_temperature_c = temperature_threshold_c(functions, device, NVML_TEMPERATURE_THRESHOLD_SHUTDOWN);
  health.temperature_margin_c = temperature_margin_c(functions, device);
  health.memory = memory(functions, device);
  health.other_processes = other_processes(functions, device);
  health.persistence_mode = enabled(functions.persistence_mode, device);
  health.compute_mode = compute_mode(functions, device);
  return health;
}

}  // namespace gpulift
