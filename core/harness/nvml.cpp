#include "nvml.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "nvml_card.hpp"
#include "window.hpp"

namespace gpulift {
namespace {

using nvml::Functions;
using nvml::get;
using nvml::kMegahertz;
using nvml::kMilli;
using nvml::kPercent;
using nvml::Library;
using nvml::require;
using nvml::scaled;
using nvml::Session;
using nvml::whole;

static_assert(nvmlClocksEventReasonGpuIdle == 0x1 && nvmlClocksEventReasonSwPowerCap == 0x4 &&
                  nvmlClocksThrottleReasonHwSlowdown == 0x8 && nvmlClocksEventReasonSyncBoost == 0x10 &&
                  nvmlClocksEventReasonSwThermalSlowdown == 0x20 && nvmlClocksThrottleReasonHwThermalSlowdown == 0x40 &&
                  nvmlClocksThrottleReasonHwPowerBrakeSlowdown == 0x80 &&
                  nvmlClocksEventReasonDisplayClockSetting == 0x100,
              "gpu_sample.cpp has the same bits");

Library open_library(const std::string& name) {
  Library library(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!library) throw std::runtime_error("no NVIDIA driver: " + name + " cannot be opened");
  return library;
}

nvmlDevice_t find_card(const Library& library, const Session& session, const std::string& card) {
  using ByName = nvmlReturn_t(const char*, nvmlDevice_t*);
  const bool is_uuid = card.starts_with("GPU-") || card.starts_with("MIG-");
  const auto* by_name = is_uuid ? "nvmlDeviceGetHandleByUUID" : "nvmlDeviceGetHandleByPciBusId_v2";
  nvmlDevice_t device = nullptr;
  session.check(require<ByName>(library, by_name)(card.c_str(), &device), card);
  return device;
}

template <typename Function, typename... Arguments>
std::string text(Function* function, Arguments... arguments) {
  std::array<char, 128> buffer{};  // longer than every *_BUFFER_SIZE of nvml.h
  if (function == nullptr || function(arguments..., buffer.data(), buffer.size() - 1) != NVML_SUCCESS) return {};
  return buffer.data();
}

/// One of the numbers that have an NVML_FI_DEV_* and no function; `scope` is the link, where it is that of one.
std::optional<unsigned long long> field_value(const Functions& functions, nvmlDevice_t device, unsigned int id,
                                              unsigned int scope = 0) {
  nvmlFieldValue_t field{};
  field.fieldId = id;
  field.scopeId = scope;
  if (functions.fields == nullptr || functions.fields(device, 1, &field) != NVML_SUCCESS ||
      field.nvmlReturn != NVML_SUCCESS) {
    return {};
  }
  switch (field.valueType) {
    case NVML_VALUE_TYPE_UNSIGNED_INT:
      return field.value.uiVal;
    case NVML_VALUE_TYPE_UNSIGNED_LONG:
      return field.value.ulVal;
    case NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
      return field.value.ullVal;
    default:
      return {};
  }
}

/// nvmlDeviceGetPowerUsage is an average over a second on most cards since Ampere; the field is instantaneous.
std::optional<double> power_w(const Functions& functions, nvmlDevice_t device) {
  const auto instant = scaled(field_value(functions, device, NVML_FI_DEV_POWER_INSTANT), kMilli);
  return instant ? instant : scaled(get<unsigned int>(functions.power, device), kMilli);
}

void add_nvlinks(GpuFacts& facts, const Functions& functions, nvmlDevice_t device) {
  constexpr double kMegabyte = 1e6;
  const auto speed = [&](unsigned int id, unsigned int link) {
    return scaled(field_value(functions, device, id, link), kMegabyte);
  };
  for (unsigned int link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    const auto state = get<nvmlEnableState_t>(functions.nvlink_state, device, link);
    if (!state) continue;
    const bool active = *state == NVML_FEATURE_ENABLED;
    facts.nvlink_links = facts.nvlink_links.value_or(0) + (active ? 1 : 0);
    const auto bytes_per_s = active ? speed(NVML_FI_DEV_NVLINK_GET_SPEED, link) : std::nullopt;
    if (bytes_per_s) {
      facts.nvlink_link_bytes_per_s = std::min(facts.nvlink_link_bytes_per_s.value_or(*bytes_per_s), *bytes_per_s);
    }
  }
  if (facts.nvlink_links.value_or(0) > 0 && !facts.nvlink_link_bytes_per_s) {  // older drivers know one for all
    facts.nvlink_link_bytes_per_s = speed(NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, 0);
  }
}

}  // namespace

Nvml::Card::Card(const std::string& card, const std::string& library_name)
    : library(open_library(library_name)),
      session(library),
      functions(library),
      device(find_card(library, session, card)) {}

Nvml::Nvml(std::shared_ptr<const Card> card) : card_(std::move(card)) {}

std::variant<Nvml, std::string> Nvml::open(const std::string& card, const std::string& library) try {
  return Nvml(std::make_shared<const Card>(card, library));
} catch (const std::runtime_error& error) {
  return error.what();
}

GpuFacts Nvml::facts() const {
  const auto& functions = card_->functions;
  auto* device = card_->device;
  GpuFacts facts;
  facts.name = text(functions.name, device);
  facts.uuid = text(functions.uuid, device);
  facts.driver = text(functions.driver);
  facts.vbios = text(functions.vbios, device);
  facts.power_limit_w = scaled(get<unsigned int>(functions.enforced_power_limit, device), kMilli);
  facts.default_power_limit_w = scaled(get<unsigned int>(functions.default_power_limit, device), kMilli);
  facts.max_sm_clock_hz = scaled(get<unsigned int>(functions.max_clock, device, NVML_CLOCK_SM), kMegahertz);
  facts.max_memory_clock_hz = scaled(get<unsigned int>(functions.max_clock, device, NVML_CLOCK_MEM), kMegahertz);
  facts.pcie_max_generation = whole(get<unsigned int>(functions.max_pcie_generation, device));
  facts.pcie_max_width = whole(get<unsigned int>(functions.max_pcie_width, device));
  facts.has_c2c = field_value(functions, device, NVML_FI_DEV_C2C_LINK_COUNT).value_or(0) > 0;
  add_nvlinks(facts, functions, device);
  nvmlEnableState_t current{};
  nvmlEnableState_t pending{};
  if (functions.ecc != nullptr && functions.ecc(device, &current, &pending) == NVML_SUCCESS) {
    facts.ecc = current == NVML_FEATURE_ENABLED;
  }
  unsigned int mig = 0;
  unsigned int pending_mig = 0;
  if (functions.mig != nullptr && functions.mig(device, &mig, &pending_mig) == NVML_SUCCESS) {
    facts.mig = mig == NVML_DEVICE_MIG_ENABLE;
  }
  return facts;
}

GpuSample Nvml::sample() const {
  const auto& functions = card_->functions;
  auto* device = card_->device;
  GpuSample sample;
  sample.time_s = now_s();
  sample.sm_clock_hz = scaled(get<unsigned int>(functions.clock, device, NVML_CLOCK_SM), kMegahertz);
  sample.memory_clock_hz = scaled(get<unsigned int>(functions.clock, device, NVML_CLOCK_MEM), kMegahertz);
  sample.power_w = power_w(functions, device);
  sample.energy_j = scaled(get<unsigned long long>(functions.energy, device), kMilli);
  sample.temperature_c = scaled(get<unsigned int>(functions.temperature, device, NVML_TEMPERATURE_GPU), 1.0);
  if (const auto rates = get<nvmlUtilization_t>(functions.utilisation, device)) {
    sample.gpu_utilisation = rates->gpu * kPercent;
  }
  sample.throttle_reasons = get<unsigned long long>(functions.throttle, device);
  sample.pcie_generation = whole(get<unsigned int>(functions.pcie_generation, device));
  sample.pcie_width = whole(get<unsigned int>(functions.pcie_width, device));
  return sample;
}

}  // namespace gpulift
