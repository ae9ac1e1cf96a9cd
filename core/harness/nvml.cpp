#include "nvml.hpp"

#include <dlfcn.h>
#include <nvml.h>

#include <array>
#include <stdexcept>
#include <utility>

#include "window.hpp"

namespace gpulift {
namespace {

static_assert(nvmlClocksEventReasonGpuIdle == 0x1 && nvmlClocksEventReasonSwPowerCap == 0x4 &&
                  nvmlClocksThrottleReasonHwSlowdown == 0x8 && nvmlClocksEventReasonSyncBoost == 0x10 &&
                  nvmlClocksEventReasonSwThermalSlowdown == 0x20 && nvmlClocksThrottleReasonHwThermalSlowdown == 0x40 &&
                  nvmlClocksThrottleReasonHwPowerBrakeSlowdown == 0x80 &&
                  nvmlClocksEventReasonDisplayClockSetting == 0x100,
              "gpu_sample.cpp has the same bits");

constexpr double kMegahertz = 1e6;
constexpr double kMilli = 1e-3;
constexpr double kPercent = 0.01;

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

Library open_library(const std::string& name) {
  Library library(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!library) throw std::runtime_error("no NVIDIA driver: " + name + " cannot be opened");
  return library;
}

/// A function of the library. Functions are looked up by the name of one version, as nvml.h would do with a macro.
/// Null when this driver lacks it.
template <typename Function>
Function* find(const Library& library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library.get(), name));
}

template <typename Function>
Function* require(const Library& library, const char* name) {
  auto* function = find<Function>(library, name);
  if (function == nullptr) throw std::runtime_error(std::string("the NVIDIA driver's library lacks ") + name);
  return function;
}

// The getters come in few shapes. Deprecated ones have no declaration that can be named without a warning.
using GetUnsigned = nvmlReturn_t(nvmlDevice_t, unsigned int*);
using GetUnsignedLong = nvmlReturn_t(nvmlDevice_t, unsigned long long*);
using GetText = nvmlReturn_t(nvmlDevice_t, char*, unsigned int);
using GetClock = nvmlReturn_t(nvmlDevice_t, nvmlClockType_t, unsigned int*);
using GetMode = nvmlReturn_t(nvmlDevice_t, nvmlEnableState_t*, nvmlEnableState_t*);
using GetTemperature = nvmlReturn_t(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned int*);

struct Functions {
  explicit Functions(const Library& library)
      : name(find<GetText>(library, "nvmlDeviceGetName")),
        uuid(find<GetText>(library, "nvmlDeviceGetUUID")),
        vbios(find<GetText>(library, "nvmlDeviceGetVbiosVersion")),
        driver(find<decltype(nvmlSystemGetDriverVersion)>(library, "nvmlSystemGetDriverVersion")),
        enforced_power_limit(find<GetUnsigned>(library, "nvmlDeviceGetEnforcedPowerLimit")),
        default_power_limit(find<GetUnsigned>(library, "nvmlDeviceGetPowerManagementDefaultLimit")),
        max_clock(find<GetClock>(library, "nvmlDeviceGetMaxClockInfo")),
        max_pcie_generation(find<GetUnsigned>(library, "nvmlDeviceGetMaxPcieLinkGeneration")),
        max_pcie_width(find<GetUnsigned>(library, "nvmlDeviceGetMaxPcieLinkWidth")),
        ecc(find<GetMode>(library, "nvmlDeviceGetEccMode")),
        mig(find<decltype(nvmlDeviceGetMigMode)>(library, "nvmlDeviceGetMigMode")),
        clock(find<GetClock>(library, "nvmlDeviceGetClockInfo")),
        fields(find<decltype(nvmlDeviceGetFieldValues)>(library, "nvmlDeviceGetFieldValues")),
        power(find<GetUnsigned>(library, "nvmlDeviceGetPowerUsage")),
        energy(find<GetUnsignedLong>(library, "nvmlDeviceGetTotalEnergyConsumption")),
        temperature(find<GetTemperature>(library, "nvmlDeviceGetTemperature")),
        utilisation(find<decltype(nvmlDeviceGetUtilizationRates)>(library, "nvmlDeviceGetUtilizationRates")),
        throttle(find<GetUnsignedLong>(library, "nvmlDeviceGetCurrentClocksEventReasons")),
        throttle_before_535(find<GetUnsignedLong>(library, "nvmlDeviceGetCurrentClocksThrottleReasons")),
        pcie_generation(find<GetUnsigned>(library, "nvmlDeviceGetCurrPcieLinkGeneration")),
        pcie_width(find<GetUnsigned>(library, "nvmlDeviceGetCurrPcieLinkWidth")) {}

  GetText* name;
  GetText* uuid;
  GetText* vbios;
  decltype(nvmlSystemGetDriverVersion)* driver;
  GetUnsigned* enforced_power_limit;
  GetUnsigned* default_power_limit;
  GetClock* max_clock;
  GetUnsigned* max_pcie_generation;
  GetUnsigned* max_pcie_width;
  GetMode* ecc;
  decltype(nvmlDeviceGetMigMode)* mig;
  GetClock* clock;
  decltype(nvmlDeviceGetFieldValues)* fields;
  GetUnsigned* power;
  GetUnsignedLong* energy;
  GetTemperature* temperature;
  decltype(nvmlDeviceGetUtilizationRates)* utilisation;
  GetUnsignedLong* throttle;
  GetUnsignedLong* throttle_before_535;
  GetUnsigned* pcie_generation;
  GetUnsigned* pcie_width;
};

/// nvmlInit and nvmlShutdown.
class Session {
 public:
  explicit Session(const Library& library)
      : shutdown_(require<decltype(nvmlShutdown)>(library, "nvmlShutdown")),
        describe_(require<decltype(nvmlErrorString)>(library, "nvmlErrorString")) {
    check(require<decltype(nvmlInit_v2)>(library, "nvmlInit_v2")(), "nvmlInit");
  }
  ~Session() { shutdown_(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void check(nvmlReturn_t result, const std::string& what) const {
    if (result != NVML_SUCCESS) throw std::runtime_error("NVML: " + what + ": " + describe_(result));
  }

 private:
  decltype(nvmlShutdown)* shutdown_;
  decltype(nvmlErrorString)* describe_;
};

nvmlDevice_t find_card(const Library& library, const Session& session, const std::string& card) {
  using ByName = nvmlReturn_t(const char*, nvmlDevice_t*);
  const bool is_uuid = card.starts_with("GPU-") || card.starts_with("MIG-");
  const auto* by_name = is_uuid ? "nvmlDeviceGetHandleByUUID" : "nvmlDeviceGetHandleByPciBusId_v2";
  nvmlDevice_t device = nullptr;
  session.check(require<ByName>(library, by_name)(card.c_str(), &device), card);
  return device;
}

template <typename Value, typename Function, typename... Arguments>
std::optional<Value> get(Function* function, Arguments... arguments) {
  Value value{};
  if (function == nullptr || function(arguments..., &value) != NVML_SUCCESS) return {};
  return value;
}

template <typename Value>
std::optional<double> scaled(std::optional<Value> value, double scale) {
  if (!value) return {};
  return static_cast<double>(*value) * scale;
}

std::optional<int> whole(std::optional<unsigned int> value) {
  if (!value) return {};
  return static_cast<int>(*value);
}

template <typename Function, typename... Arguments>
std::string text(Function* function, Arguments... arguments) {
  std::array<char, 128> buffer{};  // longer than every *_BUFFER_SIZE of nvml.h
  if (function == nullptr || function(arguments..., buffer.data(), buffer.size() - 1) != NVML_SUCCESS) return {};
  return buffer.data();
}

/// nvmlDeviceGetPowerUsage is an average over a second on most cards since Ampere; the field is instantaneous.
std::optional<double> power_w(const Functions& functions, nvmlDevice_t device) {
  nvmlFieldValue_t field{};
  field.fieldId = NVML_FI_DEV_POWER_INSTANT;
  if (functions.fields != nullptr && functions.fields(device, 1, &field) == NVML_SUCCESS &&
      field.nvmlReturn == NVML_SUCCESS && field.valueType == NVML_VALUE_TYPE_UNSIGNED_INT) {
    return field.value.uiVal * kMilli;
  }
  return scaled(get<unsigned int>(functions.power, device), kMilli);
}

}  // namespace

struct Nvml::Card {
  Card(const std::string& card, const std::string& name)
      : library(open_library(name)), session(library), functions(library), device(find_card(library, session, card)) {}

  Library library;
  Session session;
  Functions functions;
  nvmlDevice_t device;
};

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
  auto* throttle = functions.throttle != nullptr ? functions.throttle : functions.throttle_before_535;
  sample.throttle_reasons = get<unsigned long long>(throttle, device).value_or(0);
  sample.pcie_generation = whole(get<unsigned int>(functions.pcie_generation, device));
  sample.pcie_width = whole(get<unsigned int>(functions.pcie_width, device));
  return sample;
}

}  // namespace gpulift
