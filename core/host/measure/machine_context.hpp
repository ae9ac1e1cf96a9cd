#pragma once

#include <optional>
#include <string>

#include "core/harness/json.hpp"
#include "core/harness/nvml.hpp"
#include "device_session.hpp"

namespace gpulift {

/// The machine as a record's context describes it: hardware, driver, build and allow-listed environment. Nothing that
/// names the host, a user, a path or a serial number.
struct Machine {
  std::optional<DeviceFacts> device;
  NoDevice no_device;  // why, when there is none
  std::optional<Nvml> nvml;
  std::string nvml_missing;
  nlohmann::ordered_json context;
};

Machine look_at_machine(int gpu_index);

/// Adds what the management library says of the card to a record's context. The PCI Express link is that to the host;
/// where the two are joined in another way, it is absent.
void add_nvml_facts(nlohmann::ordered_json& context, const GpuFacts& facts);

/// The state of one GPU: see GpuHealth, with the card's short hash, its place among the host's NUMA nodes and the
/// versions of CUDA. Without that GPU: gpu_missing and gpu_remedy. Without the management library: nvml_missing.
nlohmann::ordered_json look_at_health(int gpu_index);

}  // namespace gpulift
