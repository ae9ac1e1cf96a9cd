#include "arm_checks.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "core/cuda/error.hpp"
#include "core/harness/host_limits.hpp"
#include "core/host/record/plausibility.hpp"
#include "trial.hpp"

namespace gpulift {
namespace {

constexpr const char* kPeakAllocated = "peak_allocated_bytes";

// What a framework's own allocator says of an arm is exact; free memory of the device knows only what it reserved.
void keep_metrics(ArmRecord& record, const Metrics& metrics) {
  record.metrics = metrics;
  const auto allocated = metrics.find(kPeakAllocated);
  if (allocated != metrics.end()) record.peak_device_bytes = static_cast<std::size_t>(allocated->second);
}

void keep_precondition(ArmRecord& record, const Precondition& required) {
  record.precondition = {required.name, required.most, 0};
}

void require_same(Entry& entry, const std::string& who, double error) {
  if (error < 0) throw Failed("arm " + who + ": its check gave an error below 0: " + std::to_string(error));
  if (!(error <= entry.tolerance())) {  // false for NaN too
    throw Failed("arm " + who + " does not give the same result: error " + std::to_string(error) + ", tolerance " +
                 std::to_string(entry.tolerance()) + " (" + entry.check.meaning + ")");
  }
  entry.record.check_error = error;
  entry.record.check_tolerance = entry.tolerance();
}

void compare_values(std::vector<Entry>& entries) {
  std::vector<Entry*> with_value;
  for (Entry* entry : usable_of(entries)) {
    if (entry->value) with_value.push_back(entry);
  }
  for (Entry* entry : with_value) {
    const double first = *with_value.front()->value;
    const double scale = std::max(std::abs(first), std::numeric_limits<double>::min());
    const double own_error = entry->record.check_error.value_or(0);
    const bool alone = with_value.size() == 1;  // it is held against nothing
    if (alone) entry->record.checked = entry->record.check_error.has_value();
    if (!alone) require_same(*entry, entry->record.name, std::max(own_error, std::abs(*entry->value - first) / scale));
  }
}

/// Beside a baseline alone a failed arm leaves nothing to tell.
void require_other_than_failed(std::vector<Entry>& entries) {
  if (usable_of(entries).size() > 1) return;
  for (const Entry& entry : entries) {
    if (entry.record.result.outcome == Outcome::kFailed) throw Failed(entry.record.result.reason);
  }
}

void require_roof(const ArmRecord& arm) {
  if (!arm.cost || arm.cost->roof.empty() || is_roof(arm.cost->roof)) return;
  throw Failed("arm " + arm.name + ": its cost names the roof '" + arm.cost->roof +
               "', which core/registers/roofs.json does not have");
}

/// A value that no sweep has may ask for more processes than end well.
void require_memory(int ranks) {
  constexpr double kOfPython = 1 << 28;  // PyTorch in its own process takes 284 MB for itself before it does anything
  if (kOfPython * ranks <= static_cast<double>(allowed_memory_bytes())) return;
  throw Skipped("its " + std::to_string(ranks) + " ranks are more than this machine's memory holds",
                "take fewer ranks");
}

}  // namespace

std::vector<Entry*> usable_of(std::vector<Entry>& entries) {
  std::vector<Entry*> usable;
  for (Entry& entry : entries) {
    if (entry.record.result.ok()) usable.push_back(&entry);
  }
  return usable;
}

bool is_planted(const Entry& entry, const Job& job, const RunSettings& settings) {
  return settings.plant > 0 && (!job.is_duet() || !entry.record.baseline);
}

ArmChecks::ArmChecks(const Job& job, const LaunchContext& launch, DeviceSession* device, CaseRecord& record)
    : job_(job), launch_(launch), device_(device), uses_device_(device != nullptr), record_(record) {}

void ArmChecks::check(std::vector<Entry>& entries, const std::vector<std::size_t>& order) {
  const double begun_s = now_s();
  start_workers(entries, order);
  start_s_ = now_s() - begun_s;
  for (Entry& entry : entries) {
    if (!entry.arm.worker) prepare(entry);
  }
  for (const std::size_t place : order) {
    if (entries[place].arm.worker) prepare(entries[place]);  // its process allocates before it is checked
  }
  require_other_than_failed(entries);
  compare_values(entries);
  for (const Entry& entry : entries) require_roof(entry.record);
}

std::map<std::string, double> ArmChecks::time_s(double all_s) const {
  std::map<std::string, double> parts_s = spent_s_;
  parts_s["start"] = start_s_;
  parts_s["checks"] = std::accumulate(parts_s.begin(), parts_s.end(), all_s,
                                      [](double left_s, const auto& part) { return left_s - part.second; });
  return parts_s;
}

// All at once, since a start loads libraries for seconds. No check begins before all are done: some take times.
void ArmChecks::start_workers(std::vector<Entry>& entries, const std::vector<std::size_t>& order) {
  const auto attempt = [](Entry& entry, const std::function<void()>& begin) {
    try {
      begin();
    } catch (...) {
      entry.failed_start = std::current_exception();
      entry.workers.reset();
    }
  };
  for (const std::size_t place : order) {
    Entry& entry = entries[place];
    if (entry.arm.worker && entry.arm.unavailable.empty()) attempt(entry, [&] { start(entry); });
  }
  for (const std::size_t place : order) {
    Entry& entry = entries[place];
    if (entry.workers == nullptr) continue;
    if (launch_.tell) launch_.tell(entry.record.name + ": starting");
    attempt(entry, [&] { entry.workers->await_start(); });
  }
}

// Check and memory with this arm alone.
void ArmChecks::prepare(Entry& entry) {
  ArmRecord& record = entry.record;
  if (!entry.arm.unavailable.empty()) {
    record.cost.reset();
    record.result = {Outcome::kSkipped, entry.arm.unavailable};
    return;
  }
  if (launch_.tell) launch_.tell(record.name + ": building and checking");
  try {
    entry.arm.worker ? check_workers(entry) : check_here(entry);
  } catch (const Skipped& skipped) {
    record.result = {Outcome::kSkipped, skipped.what(), skipped.remedy()};
  } catch (const NotSupported& unsupported) {
    record.result = {Outcome::kSkipped, unsupported.what()};
  } catch (const OutOfMemory& exhausted) {  // what the arm took is free again, and the others may fit
    record.result = out_of_memory(exhausted);
  } catch (const Failed& failed) {  // what is right of the others is no less so
    if (record.baseline || job_.is_duet()) throw;
    record.result = {Outcome::kFailed, failed.what()};
  }
}

void ArmChecks::check_here(Entry& entry) {
  const Range range(device_, "check " + entry.record.name);
  if (launch_.settings.prove_checks) prove_check(entry.arm, entry.check, device_);
  if (device_ != nullptr) {
    entry.record.clock = entry.arm.clock;  // without a device there is the host's alone
    device_->reset_peak();
  }
  const Work work = entry.arm.make();
  if (work.required()) keep_precondition(entry.record, *work.required());
  const double error = checked_error(work, entry.check, device_, [&] {
    if (device_ == nullptr) return;
    const auto peak = device_->peak();
    entry.record.peak_device_bytes = peak.device_bytes;
    entry.record.peak_pinned_bytes = peak.pinned_bytes;
  });
  require_same(entry, entry.record.name, error);
  keep_metrics(entry.record, metrics_of(entry.arm, work, device_));
}

void ArmChecks::check_workers(Entry& entry) {
  if (entry.failed_start) std::rethrow_exception(entry.failed_start);
  auto group = std::move(entry.workers);  // it ends here where it cannot run
  group->check();
  take(entry, group->hello());
  entry.workers = std::move(group);
}

void ArmChecks::start(Entry& entry) {
  const Worker& worker = *entry.arm.worker;
  RunSettings settings = launch_.settings;
  if (!is_planted(entry, job_, settings)) settings.plant = 0;
  Job job = job_;
  const bool of_base = job.is_duet() && entry.record.baseline;
  if (of_base) {  // the worker loads the build of its own side
    job.module = job.base_module;
    job.side = "base";
  }
  const bool of_two_pythons = job.is_duet() && !settings.base_python.empty();
  const std::string& python = of_base && of_two_pythons ? settings.base_python : settings.python;
  // Two interpreters run the same scripts: the head repeats what the base found, so that results are compared, too.
  const std::string found_by = of_two_pythons ? "base:" + job.arm : entry.record.name;
  const bool on_gpu = launch_.has_gpu && (worker.python || worker.device);
  const bool given = worker.ranks > 1 && !settings.given.is_null();
  if (given && settings.given.at("places").size() != static_cast<std::size_t>(worker.ranks)) {
    throw Skipped("it has " + std::to_string(worker.ranks) + " ranks, and " +
                      std::to_string(settings.given.at("places").size()) + " were given",
                  "start as many: srun, torchrun or mpirun says how many");
  }
  if (on_gpu && !given && static_cast<std::size_t>(worker.ranks) > settings.gpus.size()) {
    throw Skipped("its " + std::to_string(worker.ranks) + " ranks need a GPU each, and the run has " +
                      std::to_string(settings.gpus.size()),
                  "name them: --gpus 0,1,...");
  }
  if (job.off_sweep && !on_gpu && !given && worker.python) require_memory(worker.ranks);
  uses_device_ = uses_device_ || on_gpu;
  entry.record.ranks = worker.ranks;
  entry.record.environment = worker.environment;
  if (on_gpu && worker.ranks > 1) {
    watched_gpus_ = std::max(watched_gpus_, std::min(static_cast<std::size_t>(worker.ranks), settings.gpus.size()));
    record_.gpus = watched_gpus_;
  }
  const int port = worker.ranks > 1 ? own_port() : 0;
  entry.workers = std::make_unique<GroupRunner>(
      WorkerStart{job, settings, python, launch_.has_gpu, port, job.earlier.value(found_by, nlohmann::ordered_json())},
      entry.arm);
}

int ArmChecks::own_port() {
  int port = free_port();
  while (port != 0 && !ports_.insert(port).second) port = free_port();
  return port;
}

void ArmChecks::take(Entry& entry, const Hello& hello) {
  ArmRecord& record = entry.record;
  // All arms of one side have the same interpreter, and so the same notes. A duet's versions are those of its head.
  const bool of_base = job_.is_duet() && record.baseline;
  const std::string side = of_base ? "base:" : "";
  for (const auto& [key, value] : hello.notes) record_.notes[side + key] = value;
  for (const auto& [library, version] : hello.versions)
    (of_base ? record_.notes : record_.versions)[side + library] = version;
  if (!hello.scratch.is_null()) record_.scratch = hello.scratch;
  for (const auto& [part, time_s] : hello.spent_s) spent_s_[part] += time_s;
  if (hello.cost) record.cost = hello.cost;
  if (hello.tolerance) entry.arm.tolerance = hello.tolerance;
  if (hello.precondition) keep_precondition(record, *hello.precondition);
  if (hello.has_events) record.clock = Clock::kUnheld;
  record.peak_host_bytes = hello.peak_host_bytes;
  entry.value = hello.value;
  if (hello.check_error) {
    const std::string rank = record.ranks > 1 ? ", rank " + std::to_string(hello.worst_rank) + "," : "";
    require_same(entry, record.name + rank, *hello.check_error);
  } else {
    record.checked = hello.value.has_value();
  }
  keep_metrics(record, hello.metrics);
}

}  // namespace gpulift
