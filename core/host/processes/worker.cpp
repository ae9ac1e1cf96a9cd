#include "worker.hpp"

#include <link.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/cuda/error.hpp"
#include "core/harness/channel.hpp"
#include "core/harness/host_runner.hpp"
#include "core/host/measure/module_loader.hpp"
#include "core/host/measure/planted_runner.hpp"
#include "core/host/measure/trial.hpp"
#include "core/host/record/record.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

/// Whether a loaded file is the library: of that name or, when the library is named by a path, that very file.
bool is_library(const std::filesystem::path& loaded, const std::filesystem::path& library) {
  if (!library.has_parent_path()) return loaded.filename() == library;
  std::error_code failure;  // the program itself has no path, the kernel's part no file
  return std::filesystem::equivalent(loaded, library, failure);
}

/// Whether the library is really in this process.
bool is_loaded(const std::string& library) {
  if (library.empty()) return true;
  struct Search {
    const std::string& name;
    bool found;
  } search{library, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t /*size*/, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        wanted.found = wanted.found || is_library(info->dlpi_name, wanted.name);
        return 0;
      },
      &search);
  return search.found;
}

// The kernel's high-water mark of resident memory, which "5" resets.
void reset_peak_rss() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::size_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoull(line.substr(key.size())) * 1024;
  }
  return 0;
}

Json window_to_json(const Window& window) {
  Json json{{"start_s", window.start_s}, {"host_s", window.host_s}, {"enqueue_s", window.enqueue_s}};
  if (window.device_s) json["device_s"] = *window.device_s;
  if (window.cpu_s) json["cpu_s"] = *window.cpu_s;
  if (window.empty_launch_s) json["empty_launch_s"] = *window.empty_launch_s;
  if (window.precondition) json["precondition"] = *window.precondition;
  return json;
}

std::unique_ptr<ArmRunner> runner_of(const Work& work, Clock clock, double plant, DeviceSession* device) {
  const auto plain = [device, clock](Work any) -> std::unique_ptr<ArmRunner> {
    if (device != nullptr) return device->runner(std::move(any), clock);
    return std::make_unique<HostRunner>(std::move(any), HostRunner::Counted::kWithChildren);
  };
  if (plant <= 0) return plain(work);
  auto extra = clock == Clock::kUnheld ? device->extra_work() : make_host_work();
  return std::make_unique<PlantedRunner>(work, clock, plant, std::move(extra), plain);
}

Json launches_of(ArmRunner* runner) {
  const auto launches = runner != nullptr ? runner->launches_per_step() : std::nullopt;
  return launches ? Json{{"launches_per_step", *launches}} : Json::object();
}

Json hello_of(const Work& work, const Arm& arm, const PreparedArms& prepared, DeviceSession* device) {
  const std::size_t before_bytes = status_bytes("VmRSS:");
  reset_peak_rss();
  std::size_t peak_bytes = 0;
  const double error = checked_error(work, prepared.check, device, [&] { peak_bytes = status_bytes("VmHWM:"); });
  Json hello{{"check_error", std::isfinite(error) ? Json(error) : Json("not a number")},
             {"peak_host_bytes", peak_bytes > before_bytes ? peak_bytes - before_bytes : 0},
             {"has_events", device != nullptr && arm.clock != Clock::kHost},
             {"has_before", work.has_before()},
             {"metrics", metrics_of(arm, work, device)},
             {"notes", prepared.said.notes},
             {"versions", prepared.said.versions}};
  if (const auto& required = work.required())
    hello["precondition"] = {{"name", required->name}, {"most", required->most}};
  if (!prepared.said.scratch.is_null()) hello["scratch"] = prepared.said.scratch;
  return hello;
}

void answer_windows(Channel& channel, const PreparedArms& prepared, const std::string& name,
                    const RunSettings& settings, DeviceSession* device) {
  const auto arm = std::find_if(prepared.arms.begin(), prepared.arms.end(),
                                [&name](const Arm& candidate) { return candidate.name == name; });
  if (arm == prepared.arms.end()) throw std::logic_error("no arm " + name);
  if (settings.prove_checks) prove_check(*arm, prepared.check, device);
  const Work work = arm->make();
  channel.send(hello_of(work, *arm, prepared, device));
  std::unique_ptr<ArmRunner> runner;
  while (const auto request = channel.receive()) {
    if (request->contains("launches_per_step")) {
      channel.send(launches_of(runner.get()));
      continue;
    }
    if (request->contains("profile_step")) {
      runner_of(work, Clock::kUnheld, 0, device)->profile_step();
      channel.send({{"profiled", true}});
      continue;
    }
    const Clock clock = request->at("by_events") ? Clock::kUnheld : Clock::kHost;  // the same in every request
    if (runner == nullptr) runner = runner_of(work, clock, settings.plant, device);
    Json answer = window_to_json(runner->run(request->at("lead_in_steps"), request->at("steps")));
    if (const auto planted = runner->planted()) answer["planted"] = *planted;
    channel.send(answer);
  }
}

/// Rank 0 makes and shares; the parent relays it to the others.
std::string from_first(Channel& channel, const Group& group, const std::function<std::string()>& make) {
  if (group.rank == 0) {
    const std::string made = make();
    channel.send({{"share", made}});
    return made;
  }
  const auto shared = channel.receive();
  if (!shared) throw std::runtime_error("rank 0 ended before it shared anything");
  return shared->at("share");
}

/// The device of this rank; null where the arm runs on the host.
std::unique_ptr<DeviceSession> open_own_device(const Json& request) {
  const Json& gpu = request.at("gpu");
  return gpu.is_null() ? nullptr : open_device(gpu.get<int>());
}

}  // namespace

int answer_preloaded(const std::string& library) { return is_loaded(library) ? 0 : 1; }

int serve_worker() {
  die_with_parent();
  Channel channel;
  const auto request = channel.receive();
  if (!request) return 0;
  const Job job = job_from_json(request->at("job"));
  LaunchContext launch;
  launch.settings = settings_from_json(request->at("settings"));
  launch.group = {.rank = request->at("rank"), .ranks = request->at("ranks")};
  if (launch.group.ranks > 1) {
    launch.from_first = [&](const std::function<std::string()>& make) {
      return from_first(channel, launch.group, make);
    };
  }
  launch.no_device = {"a worker arm of this technique has no device", ""};
  try {
    const auto device = open_own_device(*request);
    launch.device = device.get();
    launch.has_gpu = device != nullptr;
    const Module module(job.module);
    channel.send({{"ready", true}});
    if (!channel.receive()) return 0;  // until it is this arm's turn
    run_up_to_compare(module.technique(), job, launch, [&](const PreparedArms& prepared) {
      answer_windows(channel, prepared, request->at("arm"), launch.settings, launch.device);
    });
  } catch (const Skipped& skipped) {
    channel.send({{"skipped", skipped.what()}, {"remedy", skipped.remedy()}});
  } catch (const Failed& failed) {
    channel.send({{"failed", failed.what()}});
  } catch (const NotSupported& unsupported) {
    channel.send({{"skipped", unsupported.what()}});
  } catch (const OutOfMemory& exhausted) {
    const Result result = out_of_memory(exhausted);
    channel.send({{"skipped", result.reason}, {"remedy", result.remedy}});
  } catch (const std::exception& error) {
    channel.send({{"error", error.what()}});
    return 1;
  }
  return 0;
}

}  // namespace gpulift
