// Stands in for libnvidia-ml.so.1 in tests. The card 0000:01:00.0 answers what is asked below, the card 0000:02:00.0
// answers nothing, and the card 0000:04:00.0 has links and counters that do not always answer. Other functions are
// missing, as they are in an old driver.
#include <nvml.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string_view>

namespace {

constexpr std::array<char, 3> kCards{};  // a handle is the address of one

nvmlDevice_t handle(std::size_t card) { return reinterpret_cast<nvmlDevice_t>(const_cast<char*>(&kCards[card])); }

template <typename Value, typename Given>
nvmlReturn_t answer(nvmlDevice_t device, Value* value, Given given) {
  if (device != handle(0)) return NVML_ERROR_NOT_SUPPORTED;
  *value = static_cast<Value>(given);
  return NVML_SUCCESS;
}

struct Readings {
  int taken = 0;
  int allocated = 0;
};

Readings& readings() {
  static Readings readings;
  return readings;
}

}  // namespace

/// Which reading it is, counted from 1.
struct nvmlGpmSample_st {
  int reading;
};

nvmlReturn_t nvmlInit_v2() {
  readings() = {};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlShutdown() {
  if (readings().allocated != 0) std::abort();
  return NVML_SUCCESS;
}
const char* nvmlErrorString(nvmlReturn_t) { return "some error"; }

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
  const std::string_view id = bus_id;
  constexpr std::array<std::string_view, kCards.size()> kIds{"0000:01:00.0", "0000:02:00.0", "0000:04:00.0"};
  const auto* const found = std::find(kIds.begin(), kIds.end(), id);
  if (found == kIds.end()) return NVML_ERROR_NOT_FOUND;
  *device = handle(static_cast<std::size_t>(found - kIds.begin()));
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current, nvmlEnableState_t* pending) {
  *pending = NVML_FEATURE_DISABLED;
  return answer(device, current, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                                         unsigned long long* count) {
  return answer(device, count, 10 * type + counter);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int* correctable, unsigned int* uncorrectable,
                                       unsigned int* pending, unsigned int* failure) {
  *uncorrectable = 2;
  *pending = 0;
  *failure = 1;
  return answer(device, correctable, 3);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int* count) {
  return answer(device, count, 12);
}

// Links 0 and 1 are there; the second is down and has no version and no counters. Of the third card both are up.
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t* state) {
  if (link > 1) return NVML_ERROR_INVALID_ARGUMENT;
  *state = NVML_FEATURE_ENABLED;
  if (device == handle(2)) return NVML_SUCCESS;
  return answer(device, state, link == 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED);
}
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int* version) {
  if (link != 0) return NVML_ERROR_NOT_SUPPORTED;
  return answer(device, version, NVML_NVLINK_VERSION_4_0);
}
nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
                                             unsigned long long* count) {
  if (link != 0 || counter == NVML_NVLINK_ERROR_DL_RECOVERY) return NVML_ERROR_NOT_SUPPORTED;
  return answer(device, count, 100);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int* min_mw,
                                                          unsigned int* max_mw) {
  *max_mw = 700'000;
  return answer(device, min_mw, 200'000);
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t threshold,
                                               unsigned int* temperature_c) {
  return answer(device, temperature_c, threshold == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN ? 95 : 92);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  memory->free = 70;
  memory->used = 20;
  memory->reserved = 10;
  return answer(device, &memory->total, 100);
}

// Ourselves, another, and one whose memory is not known.
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                     nvmlProcessInfo_t* processes) {
  if (*count < 3) return NVML_ERROR_INSUFFICIENT_SIZE;
  constexpr auto kUnknown = static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE);
  processes[0] = {static_cast<unsigned int>(getpid()), 1, 0, 0};
  processes[1] = {1, 4096, 0, 0};
  processes[2] = {2, kUnknown, 0, 0};
  return answer(device, count, 3);
}

// The name that drivers before 535 have.
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
  return answer(device, reasons, 0x4);
}

// The count of C2C links, the speed of link 0 and, of the third card, that of all links together.
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  for (int i = 0; i < count; ++i) {
    auto& field = values[i];
    field.valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field.nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    if (field.fieldId == NVML_FI_DEV_C2C_LINK_COUNT) field.nvmlReturn = answer(device, &field.value.uiVal, 5);
    if (field.fieldId == NVML_FI_DEV_NVLINK_GET_SPEED && field.scopeId == 0) {
      field.nvmlReturn = answer(device, &field.value.uiVal, 26562);
    }
    if (field.fieldId == NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON && device == handle(2)) {
      field.value.uiVal = 25781;
      field.nvmlReturn = NVML_SUCCESS;
    }
  }
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t* support) {
  if (support->version != NVML_GPM_SUPPORT_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  support->isSupportedDevice = device != handle(1) ? 1 : 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t* sample) {
  *sample = new nvmlGpmSample_st{};
  ++readings().allocated;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
  delete sample;
  --readings().allocated;
  return NVML_SUCCESS;
}

// The second reading of the third card fails.
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
  sample->reading = ++readings().taken;
  return device == handle(2) && sample->reading == 2 ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

// The metrics up to the fifth reading fail. There are two decoders, and the rate to the other end of the links is not
// counted.
nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t* metrics) {
  if (metrics->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (metrics->sample2->reading != metrics->sample1->reading + 1) return NVML_ERROR_INVALID_ARGUMENT;
  if (metrics->sample2->reading == 5) return NVML_ERROR_UNKNOWN;
  const std::map<unsigned int, double> values{
      {NVML_GPM_METRIC_ANY_TENSOR_UTIL, 92}, {NVML_GPM_METRIC_SM_UTIL, 95},
      {NVML_GPM_METRIC_DRAM_BW_UTIL, 24},    {NVML_GPM_METRIC_PCIE_RX_PER_SEC, 3},
      {NVML_GPM_METRIC_PCIE_TX_PER_SEC, 5},  {NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, 7},
      {NVML_GPM_METRIC_NVJPG_0_UTIL, 10},    {NVML_GPM_METRIC_NVJPG_1_UTIL, 30},
  };
  for (unsigned int i = 0; i < metrics->numMetrics; ++i) {
    auto& metric = metrics->metrics[i];
    const auto value = values.find(metric.metricId);
    metric.nvmlReturn = value != values.end() ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    metric.value = value != values.end() ? value->second : 1e9;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return answer(device, mode, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
}
