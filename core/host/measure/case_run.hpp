#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/harness/json.hpp"
#include "core/harness/telemetry.hpp"
#include "core/host/record/job.hpp"
#include "device_session.hpp"

namespace gpulift {

/// What all cases of one process share.
struct LaunchContext {
  RunSettings settings = {};
  bool has_gpu = false;             // a GPU is there; its context may be a worker's alone
  DeviceSession* device = nullptr;  // of this process; null: none, for the reason below, or left to the workers
  NoDevice no_device = {};
  std::vector<Telemetry*> telemetry = {};  // of the GPUs in the settings' order; empty: none, for the reason below
  std::string telemetry_missing = {};
  nlohmann::ordered_json context = {};  // the record's
  nlohmann::ordered_json gpus = {};     // facts of all GPUs in the settings' order
  /// Says what is being done, so that a slow case is no hung one; empty: nobody asks.
  std::function<void(const std::string& what)> tell = {};
  Group group = {};  // of this process, in a worker
  /// Trial::from_first() of a worker of several.
  std::function<std::string(const std::function<std::string()>& make)> from_first = {};
};

/// Runs one job and returns its record. Never throws for what a technique does: that is the record's outcome.
nlohmann::ordered_json run_case(const Job& job, LaunchContext& launch);

}  // namespace gpulift
