#include "launch.hpp"

#include <map>

#include "core/cuda/error.hpp"
#include "core/harness/channel.hpp"
#include "core/harness/nvml.hpp"
#include "core/host/measure/case_run.hpp"
#include "core/host/measure/machine_context.hpp"
#include "core/host/record/build_info.hpp"
#include "core/host/record/catalogue.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

/// Device, telemetry and context of this process.
class LaunchResources {
 public:
  /// Opens no device where only workers use it.
  LaunchResources(const RunSettings& settings, bool all_workers) {
    launch_.settings = settings;
    launch_.gpus = Json::array();
    for (const int gpu : settings.gpus) add(look_at_machine(gpu), all_workers);
    add_settings(launch_.context, settings);
  }

  LaunchContext& context() { return launch_; }

 private:
  void add(const Machine& machine, bool all_workers) {
    const bool first = launch_.context.is_null();
    if (first) launch_.context = machine.context;
    if (!machine.device) {
      if (first) launch_.no_device = machine.no_device;
      launch_.telemetry_missing = machine.nvml_missing;
      return;
    }
    launch_.gpus.push_back(machine.context.at("gpu"));
    if (first && !all_workers) use_device(launch_.settings.gpus.front());
    if (first && all_workers) launch_.has_gpu = true;
    if (!machine.nvml || telemetry_.size() + 1 < launch_.gpus.size()) {  // a gap would shift those behind it
      if (telemetry_.empty()) launch_.telemetry_missing = machine.nvml_missing;
      return;
    }
    telemetry_.push_back(std::make_unique<Telemetry>(machine.nvml->sampling()));
    launch_.telemetry.push_back(telemetry_.back().get());
  }

  // A device may be listed and still refuse a context (exclusive mode, no memory left) or the code of this build.
  void use_device(int index) {
    try {
      device_ = open_device(index);
      launch_.device = device_.get();
      launch_.has_gpu = true;
    } catch (const NoDeviceCode&) {
      launch_.no_device =
          why_no_device_code(build_facts().at("architectures"), launch_.context.at("gpu").at("architecture"));
    } catch (const Error& error) {
      launch_.no_device = {std::string("the GPU cannot be used: ") + error.what(), "see what else uses it: nvidia-smi"};
    }
  }

  std::unique_ptr<DeviceSession> device_;
  std::vector<std::unique_ptr<Telemetry>> telemetry_;
  LaunchContext launch_;
};

}  // namespace

int serve_launch() {
  die_with_parent();
  Channel channel;
  const auto request = channel.receive();
  if (!request) return 0;
  LaunchResources resources(settings_from_json(request->at("settings")), request->at("all_workers"));
  LaunchContext& launch = resources.context();
  launch.tell = [&channel](const std::string& what) { channel.send({{"event", "alive"}, {"what", what}}); };
  if (request->at("has_gpu") && !launch.has_gpu) {  // nothing is measured on the processor in its place
    channel.send({{"event", "lost_gpu"}, {"reason", launch.no_device.reason}, {"remedy", launch.no_device.remedy}});
    return 0;
  }
  channel.send({{"event", "ready"}});
  std::map<std::string, Json> notes;  // a duet has a job per arm: what one searched, the next of its case recalls
  for (const Json& entry : request->at("jobs")) {
    channel.send({{"event", "started"}});
    Job job = job_from_json(entry);
    Json& noted = notes[full_case_id(job.technique, job.case_id)];
    if (!noted.is_null()) job.recalled.update(noted);
    const Json record = run_case(job, launch);
    if (record.contains("notes")) noted.update(record.at("notes"));
    const bool healthy = launch.device == nullptr || launch.device->healthy();
    channel.send({{"event", "record"}, {"record", record}});
    if (!healthy) return kPoisonedExit;
  }
  return 0;
}

}  // namespace gpulift
