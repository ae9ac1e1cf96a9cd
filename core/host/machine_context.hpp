#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

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

}  // namespace gpulift
