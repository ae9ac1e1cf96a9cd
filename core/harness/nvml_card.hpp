#pragma once
// What nvml.cpp and nvml_health.cpp share: the opened library, its functions, and the card. No other file needs nvml.h.

#include <dlfcn.h>
#include <nvml.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "nvml.hpp"

namespace gpulift::nvml {

inline constexpr double kMegahertz = 1e6;
inline constexpr double kMilli = 1e-3;
inline constexpr double kPercent = 0.01;

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

/// A function of the library. Functions are looked up by the name of one version, as nvml.h would do with a macro.
/// Null when this driver lacks it.
template <typename Function>
Function* find(const Library& library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library.get(), name));
}

/// The function under its name, or under the one that it has in older drivers.
template <typename Function>
Function* find_either(const Library& library, const char* name, const char* older_name) {
  auto* function = find<Function>(library, name);
  return function != nullptr ? function : find<Function>(library, older_name);
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
using GetState = nvmlReturn_t(nvmlDevice_t, nvmlEnableState_t*);
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
        throttle(find_either<GetUnsignedLong>(library, "nvmlDeviceGetCurrentClocksEventReasons",
                                              "nvmlDeviceGetCurrentClocksThrottleReasons")),
        pcie_generation(find<GetUnsigned>(library, "nvmlDeviceGetCurrPcieLinkGeneration")),
        pcie_width(find<GetUnsigned>(library, "nvmlDeviceGetCurrPcieLinkWidth")),
        pcie_replays(find<GetUnsigned>(library, "nvmlDeviceGetPcieReplayCounter")),
        ecc_errors(find<decltype(nvmlDeviceGetTotalEccErrors)>(library, "nvmlDeviceGetTotalEccErrors")),
        remapped_rows(find<decltype(nvmlDeviceGetRemappedRows)>(library, "nvmlDeviceGetRemappedRows")),
        retired_pages_pending(find<GetState>(library, "nvmlDeviceGetRetiredPagesPendingStatus")),
        nvlink_state(find<decltype(nvmlDeviceGetNvLinkState)>(library, "nvmlDeviceGetNvLinkState")),
        nvlink_version(find<decltype(nvmlDeviceGetNvLinkVersion)>(library, "nvmlDeviceGetNvLinkVersion")),
        nvlink_errors(find<decltype(nvmlDeviceGetNvLinkErrorCounter)>(library, "nvmlDeviceGetNvLinkErrorCounter")),
        power_limits(find<decltype(nvmlDeviceGetPowerManagementLimitConstraints)>(
            library, "nvmlDeviceGetPowerManagementLimitConstraints")),
        application_clock(find<GetClock>(library, "nvmlDeviceGetApplicationsClock")),
        temperature_threshold(
            find<decltype(nvmlDeviceGetTemperatureThreshold)>(library, "nvmlDeviceGetTemperatureThreshold")),
        temperature_margin(find<decltype(nvmlDeviceGetMarginTemperature)>(library, "nvmlDeviceGetMarginTemperature")),
        memory(find<decltype(nvmlDeviceGetMemoryInfo_v2)>(library, "nvmlDeviceGetMemoryInfo_v2")),
        processes(find<decltype(nvmlDeviceGetComputeRunningProcesses_v3)>(library,
                                                                          "nvmlDeviceGetComputeRunningProcesses_v3")),
        persistence_mode(find<GetState>(library, "nvmlDeviceGetPersistenceMode")),
        compute_mode(find<decltype(nvmlDeviceGetComputeMode)>(library, "nvmlDeviceGetComputeMode")),
        gpm_support(find<decltype(nvmlGpmQueryDeviceSupport)>(library, "nvmlGpmQueryDeviceSupport")),
        gpm_sample_alloc(find<decltype(nvmlGpmSampleAlloc)>(library, "nvmlGpmSampleAlloc")),
        gpm_sample_free(find<decltype(nvmlGpmSampleFree)>(library, "nvmlGpmSampleFree")),
        gpm_sample_get(find<decltype(nvmlGpmSampleGet)>(library, "nvmlGpmSampleGet")),
        gpm_metrics(find<decltype(nvmlGpmMetricsGet)>(library, "nvmlGpmMetricsGet")) {}

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
  GetUnsigned* pcie_generation;
  GetUnsigned* pcie_width;
  GetUnsigned* pcie_replays;
  decltype(nvmlDeviceGetTotalEccErrors)* ecc_errors;
  decltype(nvmlDeviceGetRemappedRows)* remapped_rows;
  GetState* retired_pages_pending;
  decltype(nvmlDeviceGetNvLinkState)* nvlink_state;
  decltype(nvmlDeviceGetNvLinkVersion)* nvlink_version;
  decltype(nvmlDeviceGetNvLinkErrorCounter)* nvlink_errors;
  decltype(nvmlDeviceGetPowerManagementLimitConstraints)* power_limits;
  GetClock* application_clock;
  decltype(nvmlDeviceGetTemperatureThreshold)* temperature_threshold;
  decltype(nvmlDeviceGetMarginTemperature)* temperature_margin;
  decltype(nvmlDeviceGetMemoryInfo_v2)* memory;
  decltype(nvmlDeviceGetComputeRunningProcesses_v3)* processes;
  GetState* persistence_mode;
  decltype(nvmlDeviceGetComputeMode)* compute_mode;
  decltype(nvmlGpmQueryDeviceSupport)* gpm_support;
  decltype(nvmlGpmSampleAlloc)* gpm_sample_alloc;
  decltype(nvmlGpmSampleFree)* gpm_sample_free;
  decltype(nvmlGpmSampleGet)* gpm_sample_get;
  decltype(nvmlGpmMetricsGet)* gpm_metrics;
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

inline std::optional<int> whole(std::optional<unsigned int> value) {
  if (!value) return {};
  return static_cast<int>(*value);
}

}  // namespace gpulift::nvml

namespace gpulift {

struct Nvml::Card {
  Card(const std::string& card, const std::string& library_name);

  nvml::Library library;
  nvml::Session session;
  nvml::Functions functions;
  nvmlDevice_t device;
};

}  // namespace gpulift
