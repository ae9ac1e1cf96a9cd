// Stands in for libnvidia-ml.so.1 in tests. The card 0000:01:00.0 answers what is asked below, the card 0000:02:00.0
// answers nothing. Other functions are missing, as they are in an old driver.
#include <nvml.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string_view>

namespace {

constexpr std::array<char, 2> kCards{};  // a handle is the address of one

nvmlDevice_t handle(std::size_t card) { return reinterpret_cast<nvmlDevice_t>(const_cast<char*>(&kCards[card])); }

template <typename Value, typename Given>
nvmlReturn_t answer(nvmlDevice_t device, Value* value, Given given) {
  if (device != handle(0)) return NVML_ERROR_NOT_SUPPORTED;
  *value = static_cast<Value>(given);
  return NVML_SUCCESS;
}

}  // namespace

nvmlReturn_t nvmlInit_v2() { return NVML_SUCCESS; }
nvmlReturn_t nvmlShutdown() { return NVML_SUCCESS; }
const char* nvmlErrorString(nvmlReturn_t) { return "some error"; }

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
  const std::string_view id = bus_id;
  if (id != "0000:01:00.0" && id != "0000:02:00.0") return NVML_ERROR_NOT_FOUND;
  *device = handle(id == "0000:01:00.0" ? 0 : 1);
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

// Links 0 and 1 are there; the second is down and has no version and no counters.
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t* state) {
  if (link > 1) return NVML_ERROR_INVALID_ARGUMENT;
  return answer(device, state, link == 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED);
}
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int* version) {
  if (link != 0) return NVML_ERROR_NOT_SUPPORTED;
  return answer(device, version, NVML_NVLINK_VERSION_4_0);
}
nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
                                             unsigned long long* count) {
  if (link != 0 || counter == NVML_NVLINK_ERROR_DL_ECC_DATA) return NVML_ERROR_NOT_SUPPORTED;
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

// The count of C2C links alone.
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  for (int i = 0; i < count; ++i) {
    values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    values[i].nvmlReturn = values[i].fieldId == NVML_FI_DEV_C2C_LINK_COUNT ? answer(device, &values[i].value.uiVal, 5)
                                                                           : NVML_ERROR_NOT_SUPPORTED;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return answer(device, mode, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
}
