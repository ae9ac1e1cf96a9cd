#include "worker.hpp"

#include <link.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "case_run.hpp"
#include "core/harness/channel.hpp"
#include "core/harness/host_limits.hpp"
#include "core/harness/host_runner.hpp"
#include "launch_counter.hpp"
#include "module_loader.hpp"
#include "planted_runner.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShown = 80;  // characters of an answer that is no answer

/// The interpreter runs gpulift_worker.py, which runs the technique's script; both lie beside the module.
std::vector<std::string> python_command(const WorkerStart& start) {
  const auto script = std::filesystem::path(start.job.module).replace_extension(".py");
  return {start.python, (script.parent_path() / "gpulift_worker.py").string(), script.string()};
}

std::map<std::string, std::string> worker_environment(const Worker& worker) {
  auto environment = worker.environment;
  // So that scripts take as many threads as arms in C++, which know what control groups allow.
  environment["GPULIFT_CORES"] = std::to_string(allowed_cores(static_cast<int>(std::thread::hardware_concurrency())));
  if (!worker.preload.empty()) environment["LD_PRELOAD"] = worker.preload;
  return environment;
}

/// Asks a child, since the loader ignores a missing preload with a message and goes on.
bool can_preload(const Worker& worker) {
  if (worker.preload.empty()) return true;
  Process child({own_program(), "--is-preloaded", worker.preload}, worker_environment(worker),
                Process::Errors::kDiscard);
  return child.wait().exit_code == 0;
}

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
  return json;
}

/// Throws nlohmann's error for what is no window.
Window window_from_json(const Json& json) {
  Window window;
  window.start_s = json.at("start_s");
  window.host_s = json.at("host_s");
  window.enqueue_s = json.at("enqueue_s");
  if (json.contains("device_s")) window.device_s = json.at("device_s").get<double>();
  return window;
}

std::unique_ptr<ArmRunner> runner_of(const Step& step, Clock clock, double plant, DeviceSession* device) {
  const auto plain = [device, clock](Step with_work) -> std::unique_ptr<ArmRunner> {
    if (device != nullptr) return device->runner(std::move(with_work), clock);
    return std::make_unique<HostRunner>(std::move(with_work));
  };
  if (plant <= 0) return plain(step);
  auto work = clock == Clock::kUnheld ? device->extra_work() : make_host_work();
  return std::make_unique<PlantedRunner>(step, clock, plant, std::move(work), plain);
}

Json launches_of(ArmRunner* runner) {
  const auto launches = runner != nullptr ? runner->launches_per_step() : std::nullopt;
  return launches ? Json{{"launches_per_step", *launches}} : Json::object();
}

void answer_windows(Channel& channel, const PreparedArms& prepared, const std::string& name, double plant,
                    DeviceSession* device) {
  for (Arm& arm : prepared.arms) {
    if (arm.name != name) continue;
    const std::size_t before_bytes = status_bytes("VmRSS:");
    reset_peak_rss();
    const Step step = arm.make();
    std::size_t peak_bytes = 0;
    const double error = checked_error(step, prepared.check, device, [&] { peak_bytes = status_bytes("VmHWM:"); });
    channel.send({{"check_error", std::isfinite(error) ? Json(error) : Json("not a number")},
                  {"peak_host_bytes", peak_bytes > before_bytes ? peak_bytes - before_bytes : 0},
                  {"has_events", device != nullptr && arm.clock == Clock::kUnheld},
                  {"metrics", metrics_of(arm, step, device)}});
    std::unique_ptr<ArmRunner> runner;
    while (const auto request = channel.receive()) {
      if (request->contains("launches_per_step")) {
        channel.send(launches_of(runner.get()));
        continue;
      }
      const Clock clock = request->at("by_events") ? Clock::kUnheld : Clock::kHost;  // the same in every request
      if (runner == nullptr) runner = runner_of(step, clock, plant, device);
      Json answer = window_to_json(runner->run(request->at("lead_in_steps"), request->at("steps")));
      if (const auto planted = runner->planted()) answer["planted"] = *planted;
      channel.send(answer);
    }
    return;
  }
  throw std::logic_error("no arm " + name);
}

}  // namespace

WorkerRunner::WorkerRunner(const WorkerStart& start, const Arm& arm)
    : arm_(arm.name), timeout_s_(timeout_of(start.job, start.settings)) {
  if (!can_preload(*arm.worker)) {
    const std::filesystem::path library = arm.worker->preload;  // a record holds no path
    hello_ = {{"skipped", "the library " + library.filename().string() + " is not installed"},
              {"remedy", arm.worker->remedy}};
    return;
  }
  arm.worker->python ? start_python(start, arm) : start_own(start, arm);
  if (hello_.contains("check_error") && !hello_.at("check_error").is_number()) {
    hello_["check_error"] = std::numeric_limits<double>::quiet_NaN();
  }
}

void WorkerRunner::start_own(const WorkerStart& start, const Arm& arm) {
  const std::vector<std::string> command{own_program(), "--serve-worker"};
  process_ = std::make_unique<Process>(command, worker_environment(*arm.worker));
  hello_ = ask({{"job", to_json(start.job)},
                {"settings", to_json(start.settings)},
                {"arm", arm.name},
                {"device", start.has_device && arm.worker->device}});
}

void WorkerRunner::start_python(const WorkerStart& start, const Arm& arm) {
  try {
    process_ = std::make_unique<Process>(python_command(start), worker_environment(*arm.worker));
  } catch (const std::system_error& failure) {
    hello_ = {{"skipped", "the Python interpreter cannot be started: " + failure.code().message()},
              {"remedy", "run ./gpulift setup, or name an interpreter with --python"}};
    return;
  }
  hello_ = ask({{"arm", arm.name},
                {"point", start.job.point},
                {"seed", case_seed(start.job, start.settings)},
                {"plant", start.settings.plant},
                {"gpu", start.has_device ? Json(start.settings.gpu) : Json(nullptr)},
                {"launch_counter", start.has_device ? Json(launch_counter_library().string()) : Json(nullptr)}});
}

Window WorkerRunner::run(std::int64_t lead_in_steps, std::int64_t steps) {
  const Json answer = ask({{"lead_in_steps", lead_in_steps}, {"steps", steps}, {"by_events", clock_ != Clock::kHost}});
  try {
    if (answer.contains("planted")) planted_ = answer.at("planted").get<double>();
    return window_from_json(answer);
  } catch (const Json::exception&) {
    throw WorkerFailed("the worker of arm " + arm_ + " answered what is no window: " + answer.dump().substr(0, kShown));
  }
}

std::optional<double> WorkerRunner::launches_per_step() {
  const Json answer = ask({{"launches_per_step", true}});
  return answer.contains("launches_per_step") ? std::optional(answer.at("launches_per_step").get<double>())
                                              : std::nullopt;
}

Json WorkerRunner::ask(const Json& question) {
  process_->send(question.dump());  // when it no longer reads, the answer does not come either, and that says more
  std::string line;
  switch (process_->receive(line, timeout_s_)) {
    case Process::Read::kTimeout:
      throw WorkerFailed("the worker of arm " + arm_ + " did not answer within " + std::to_string(timeout_s_) + " s");
    case Process::Read::kClosed:
      throw WorkerFailed("the worker of arm " + arm_ + " ended with " + process_->wait().text());
    case Process::Read::kLine:
      break;
  }
  Json answer = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (answer.contains("error"))
    throw WorkerFailed("the worker of arm " + arm_ + ": " + answer.at("error").get<std::string>());
  if (!answer.is_object()) {
    throw WorkerFailed("the worker of arm " + arm_ + " answered what is no JSON object: " + line.substr(0, kShown));
  }
  return answer;
}

int answer_preloaded(const std::string& library) { return is_loaded(library) ? 0 : 1; }

int serve_worker() {
  die_with_parent();
  Channel channel;
  const auto request = channel.receive();
  if (!request) return 0;
  const Job job = job_from_json(request->at("job"));
  LaunchContext launch;
  launch.settings = settings_from_json(request->at("settings"));
  launch.no_device = {"a worker arm of this technique has no device", ""};
  try {
    const auto device = request->at("device").get<bool>() ? open_device(launch.settings.gpu) : nullptr;
    launch.device = device.get();
    const Module module(job.module);
    run_up_to_compare(module.technique(), job, launch, [&](const PreparedArms& prepared) {
      answer_windows(channel, prepared, request->at("arm"), launch.settings.plant, launch.device);
    });
  } catch (const std::exception& error) {
    channel.send({{"error", error.what()}});
    return 1;
  }
  return 0;
}

}  // namespace gpulift
