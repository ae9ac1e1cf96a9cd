#include "launch.hpp"

#include <map>

#include "build_info.hpp"
#include "case_run.hpp"
#include "catalogue.hpp"
#include "core/cuda/error.hpp"
#include "core/harness/channel.hpp"
#include "core/harness/nvml.hpp"
#include "machine_context.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

/// Device, telemetry and context of this process.
class LaunchResources {
 public:
  explicit LaunchResources(const RunSettings& settings) {
    launch_.settings = settings;
    const Machine machine = look_at_machine(settings.gpu);
    launch_.context = machine.context;
    launch_.context["options"] = options_of(settings);
    if (machine.device) {
      use_device(settings.gpu);
    } else {
      launch_.no_device = machine.no_device;
    }
    if (machine.nvml) {
      telemetry_ = std::make_unique<Telemetry>([nvml = *machine.nvml] { return nvml.sample(); });
      launch_.telemetry = telemetry_.get();
    } else {
      launch_.telemetry_missing = machine.nvml_missing;
    }
  }

  LaunchContext& context() { return launch_; }

 private:
  // A device may be listed and still refuse a context (exclusive mode, no memory left) or the code of this build.
  void use_device(int index) {
    try {
      device_ = open_device(index);
      launch_.device = device_.get();
    } catch (const NoDeviceCode&) {
      launch_.no_device =
          why_no_device_code(build_facts().at("architectures"), launch_.context.at("gpu").at("architecture"));
    } catch (const Error& error) {
      launch_.no_device = {std::string("the GPU cannot be used: ") + error.what(), "see what else uses it: nvidia-smi"};
    }
  }

  std::unique_ptr<DeviceSession> device_;
  std::unique_ptr<Telemetry> telemetry_;
  LaunchContext launch_;
};

}  // namespace

int serve_launch() {
  die_with_parent();
  Channel channel;
  const auto request = channel.receive();
  if (!request) return 0;
  LaunchResources resources(settings_from_json(request->at("settings")));
  const LaunchContext& launch = resources.context();
  if (request->at("has_gpu") && launch.device == nullptr) {  // nothing is measured on the processor in its place
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
    const Json record = run_case(job, resources.context());
    if (record.contains("notes")) noted.update(record.at("notes"));
    DeviceSession* device = resources.context().device;
    const bool healthy = device == nullptr || device->healthy();
    channel.send({{"event", "record"}, {"record", record}});
    if (!healthy) return kPoisonedExit;
  }
  return 0;
}

}  // namespace gpulift
