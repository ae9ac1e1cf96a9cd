#include "case_measurement.hpp"

#include <algorithm>
#include <cmath>

#include "core/cuda/error.hpp"
#include "core/harness/host_load.hpp"
#include "core/harness/host_runner.hpp"
#include "core/harness/stop_rule.hpp"
#include "planted_runner.hpp"
#include "plausibility.hpp"
#include "sampling_plan.hpp"

namespace gpulift {
namespace {

constexpr const char* kPeakAllocated = "peak_allocated_bytes";
constexpr double kEnergyLeadIn_s = 0.3;  // the arm's own power before its energy counts
constexpr double kEnergyWindow_s = 1.2;  // 8 updates of a counter that is updated every 100 ms, and some to spare

/// Shows each window to a profiler under the arm's name.
class RangedRunner : public ArmRunner {
 public:
  RangedRunner(std::unique_ptr<ArmRunner> runner, DeviceSession* device, std::string name)
      : runner_(std::move(runner)), device_(device), name_(std::move(name)) {}
  Window run(std::int64_t lead_in_steps, std::int64_t steps) override {
    const Range range(device_, name_);
    return runner_->run(lead_in_steps, steps);
  }
  std::int64_t max_steps() const override { return runner_->max_steps(); }
  bool begins_afresh() const override { return runner_->begins_afresh(); }
  std::optional<double> launches_per_step() override { return runner_->launches_per_step(); }

 private:
  std::unique_ptr<ArmRunner> runner_;
  DeviceSession* device_;
  std::string name_;
};

// Two clocks in one ratio would differ by what only one of them sees: the emptying of the queue behind a window.
void settle_clocks(const std::vector<Entry*>& usable) {
  const bool on_host =
      std::any_of(usable.begin(), usable.end(), [](const Entry* entry) { return entry->record.clock == Clock::kHost; });
  for (Entry* entry : usable) {
    if (entry->record.clock == Clock::kUnheld && on_host) entry->record.clock = Clock::kHost;
  }
}

// What a framework's own allocator says of an arm is exact; free memory of the device knows only what it reserved.
void keep_metrics(ArmRecord& record, const Metrics& metrics) {
  record.metrics = metrics;
  const auto allocated = metrics.find(kPeakAllocated);
  if (allocated != metrics.end()) record.peak_device_bytes = static_cast<std::size_t>(allocated->second);
}

void keep_precondition(ArmRecord& record, const Precondition& required) {
  record.precondition = {required.name, required.most, 0};
}

/// The device's part of a window: the host's time of it holds the lead-in that ran with it.
double begin_s(const Window& window) {
  return window.start_s + window.host_s - window.device_s.value_or(window.host_s);
}

}  // namespace

CaseMeasurement::CaseMeasurement(const Job& job, LaunchContext& launch, const Technique& technique, CaseRecord& record)
    : job_(job),
      launch_(launch),
      ceiling_(technique.ceiling && !job.is_duet()),
      whole_steps_(technique.whole_steps),
      device_(technique.gpus > 0 || technique.whole_steps ? launch.device : nullptr),
      uses_device_(device_ != nullptr),
      record_(record),
      case_start_s_(now_s()) {}

void CaseMeasurement::tell(const std::string& what) const {
  if (launch_.tell) launch_.tell(what);
}

void CaseMeasurement::measure(std::vector<Entry> entries) {
  const double begun_s = now_s();
  const auto order = allocation_order(entries.size());
  for (Entry& entry : entries) {
    if (!entry.arm.worker) prepare(entry);
  }
  for (const std::size_t place : order) {
    if (entries[place].arm.worker) prepare(entries[place]);  // its process allocates before it is checked
  }
  compare_values(entries);
  const double checked_s = now_s();
  for (const Entry& entry : entries) {
    const Result& result = entry.record.result;
    if (entry.record.baseline && !result.ok() && !ceiling_)
      throw Skipped("the baseline cannot run: " + result.reason, result.remedy);
  }
  record_.check_meaning = entries.front().check.meaning;
  record_.check_tolerance = entries.front().check.tolerance;
  const auto usable = usable_of(entries);
  if (usable.empty()) throw Skipped("no arm can run here: " + entries.front().record.result.reason, "");
  settle_clocks(usable);
  allocate(entries, order);
  const auto cpu_before = cpu_times();
  const double start_s = now_s();
  Samples samples = sample(usable);
  const double sampled_s = now_s();
  if (const auto cpu_after = cpu_times(); cpu_before && cpu_after)
    record_.host_load = host_load(*cpu_before, *cpu_after, sampled_s - start_s);
  keep_order(samples, usable, entries, order);
  for (std::size_t i = 0; i < usable.size(); ++i) {
    Entry& entry = *usable[i];
    // Of a duet's head, or of the last arm.
    if (const auto planted = entry.runner->planted()) record_.notes["planted"] = std::to_string(*planted);
    keep_samples(entry, std::move(samples.arms[i]));
  }
  if (whole_steps_) {
    for (Entry* entry : usable) keep_extras(*entry);
  }
  keep_telemetry(start_s, now_s());
  record_.time_s = {
      {"windows", samples.windows_s},  {"lead_in", samples.lead_in_s},      {"before_compare", begun_s - case_start_s_},
      {"checks", checked_s - begun_s}, {"allocation", start_s - checked_s}, {"energy", now_s() - sampled_s}};
  for (Entry& entry : entries) record_.arms.push_back(std::move(entry.record));
  if (record_.sampling->blocks.empty())
    throw Failed("the hardware slowed itself down in every block: nothing can be said");
  for (const ArmRecord& arm : record_.arms) {
    if (!arm.result.ok()) continue;
    require_precondition(arm);
    require_plausible(arm);
  }
}

std::vector<Entry*> CaseMeasurement::usable_of(std::vector<Entry>& entries) const {
  std::vector<Entry*> usable;
  for (Entry& entry : entries) {
    if (entry.record.result.ok()) usable.push_back(&entry);
  }
  return usable;
}

// Check and memory with this arm alone; nothing is timed before every arm has passed.
void CaseMeasurement::prepare(Entry& entry) {
  ArmRecord& record = entry.record;
  if (!entry.arm.unavailable.empty()) {
    record.cost.reset();
    record.result = {Outcome::kSkipped, entry.arm.unavailable};
    return;
  }
  tell(record.name + ": building and checking");
  try {
    entry.arm.worker ? check_workers(entry) : check_here(entry);
  } catch (const Skipped& skipped) {
    record.result = {Outcome::kSkipped, skipped.what(), skipped.remedy()};
  } catch (const NotSupported& unsupported) {
    record.result = {Outcome::kSkipped, unsupported.what()};
  } catch (const OutOfMemory& exhausted) {  // what the arm took is free again, and the others may fit
    record.result = out_of_memory(exhausted);
  }
}

void CaseMeasurement::check_here(Entry& entry) {
  const Range range(device_, "check " + entry.record.name);
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

void CaseMeasurement::check_workers(Entry& entry) {
  const Worker& worker = *entry.arm.worker;
  RunSettings settings = launch_.settings;
  if (!is_planted(entry)) settings.plant = 0;
  Job job = job_;
  const bool of_base = job.is_duet() && entry.record.baseline;
  if (of_base) {  // the worker loads the build of its own side
    job.module = job.base_module;
    job.side = "base";
  }
  const std::string& python = of_base && !settings.base_python.empty() ? settings.base_python : settings.python;
  const bool on_gpu = launch_.has_gpu && (worker.python || worker.device);
  if (on_gpu && static_cast<std::size_t>(worker.ranks) > settings.gpus.size()) {
    throw Skipped("its " + std::to_string(worker.ranks) + " ranks need a GPU each, and the run has " +
                      std::to_string(settings.gpus.size()),
                  "name them: --gpus 0,1,...");
  }
  uses_device_ = uses_device_ || on_gpu;
  entry.record.ranks = worker.ranks;
  entry.record.environment = worker.environment;
  if (on_gpu && worker.ranks > 1) {
    watched_gpus_ = std::max(watched_gpus_, static_cast<std::size_t>(worker.ranks));
    record_.gpus = watched_gpus_;
  }
  auto group = std::make_unique<GroupRunner>(WorkerStart{job, settings, python, launch_.has_gpu}, entry.arm);
  take(entry, group->hello());
  entry.workers = std::move(group);
}

void CaseMeasurement::take(Entry& entry, const Hello& hello) {
  ArmRecord& record = entry.record;
  // All arms of one side have the same interpreter, and so the same notes. A duet's versions are those of its head.
  const bool of_base = job_.is_duet() && record.baseline;
  const std::string side = of_base ? "base:" : "";
  for (const auto& [key, value] : hello.notes) record_.notes[side + key] = value;
  for (const auto& [library, version] : hello.versions)
    (of_base ? record_.notes : record_.versions)[side + library] = version;
  if (!hello.scratch.is_null()) record_.scratch = hello.scratch;
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

void CaseMeasurement::compare_values(std::vector<Entry>& entries) const {
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

void CaseMeasurement::require_same(Entry& entry, const std::string& who, double error) const {
  if (!(error <= entry.tolerance())) {  // false for NaN too
    throw Failed("arm " + who + " does not give the same result: error " + std::to_string(error) + ", tolerance " +
                 std::to_string(entry.tolerance()) + " (" + entry.check.meaning + ")");
  }
  entry.record.check_error = error;
  entry.record.check_tolerance = entry.tolerance();
}

// The arm that allocates first alternates between launches: where buffers lie has an effect of its own (seen: 0.1
// to 0.6 % between equal workers, for the one that starts first).
std::vector<std::size_t> CaseMeasurement::allocation_order(std::size_t arms) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < arms; ++i) order.push_back((i + static_cast<std::size_t>(job_.launch)) % arms);
  return order;
}

void CaseMeasurement::allocate(std::vector<Entry>& entries, const std::vector<std::size_t>& order) {
  for (const std::size_t place : order) {
    Entry& entry = entries[place];
    if (!entry.record.result.ok()) continue;
    if (entry.workers != nullptr) {  // they have their buffers
      entry.workers->judge_by(entry.record.clock);
      entry.runner = std::move(entry.workers);
    } else {
      entry.runner = runner_of(entry, entry.arm.make());
    }
  }
}

std::unique_ptr<ArmRunner> CaseMeasurement::runner_of(const Entry& entry, Work work) {
  if (!is_planted(entry)) return plain_runner_of(entry, std::move(work));
  return std::make_unique<PlantedRunner>(
      work, entry.record.clock, launch_.settings.plant, device_ == nullptr ? make_host_work() : device_->extra_work(),
      [&](Work with_extra) { return plain_runner_of(entry, std::move(with_extra)); });
}

bool CaseMeasurement::is_planted(const Entry& entry) const {
  return launch_.settings.plant > 0 && (!job_.is_duet() || !entry.record.baseline);
}

std::unique_ptr<ArmRunner> CaseMeasurement::plain_runner_of(const Entry& entry, Work work) {
  // Child processes here are other arms' workers.
  if (device_ == nullptr) return std::make_unique<HostRunner>(std::move(work), HostRunner::Counted::kProcess);
  return std::make_unique<RangedRunner>(device_->runner(std::move(work), entry.record.clock), device_,
                                        entry.record.name);
}

Samples CaseMeasurement::sample(const std::vector<Entry*>& usable) {
  std::vector<ArmRunner*> runners;
  std::vector<Clock> clocks;
  for (const Entry* entry : usable) {
    runners.push_back(entry->runner.get());
    clocks.push_back(entry->record.clock);
  }
  const auto disturbed = [this](double from_s, double to_s) {
    const std::size_t watched = std::min(watched_gpus_, launch_.telemetry.size());
    return std::any_of(launch_.telemetry.begin(), launch_.telemetry.begin() + static_cast<std::ptrdiff_t>(watched),
                       [&](Telemetry* gpu) { return is_hardware_slowdown(gpu->throttle_between(from_s, to_s)); });
  };
  const auto make_plan = [&](std::span<const double> step_s) { return plan(usable, step_s); };
  return sample_arms(runners, clocks, !ceiling_, make_plan, {.disturbed = disturbed, .tell = launch_.tell});
}

SamplingPlan CaseMeasurement::plan(const std::vector<Entry*>& usable, std::span<const double> step_s) const {
  const bool draws_power = std::any_of(usable.begin(), usable.end(), [](const Entry* entry) {
    return entry->record.cost.value_or(Cost{}).roof.starts_with("gemm/");
  });
  const bool by_events = std::none_of(usable.begin(), usable.end(),
                                      [](const Entry* entry) { return entry->record.clock == Clock::kHost; });
  SamplingPlan plan = sampling_plan(job_, launch_.settings,
                                    {.count = usable.size(),
                                     .on_device = device_ != nullptr,
                                     .by_events = by_events,
                                     .ceiling = ceiling_,
                                     .draws_power = draws_power,
                                     .step_s = step_s});
  plan.seed = case_seed(job_, launch_.settings);
  return plan;
}

void CaseMeasurement::keep_samples(Entry& entry, ArmSamples samples) const {
  ArmRecord& record = entry.record;
  bool known = false;
  for (const Window& window : samples.windows) {
    record.energy_j.push_back(uses_device_ ? energy_within(window) : std::nullopt);
    known = known || record.energy_j.back().has_value();
    if (record.precondition && window.precondition)
      record.precondition->worst = std::max(record.precondition->worst, *window.precondition);
  }
  if (!known) record.energy_j.clear();
  record.samples = std::move(samples);
}

void CaseMeasurement::require_precondition(const ArmRecord& arm) const {
  if (!arm.precondition || arm.precondition->worst <= arm.precondition->most) return;
  throw Failed("arm " + arm.name + ": " + arm.precondition->name + " was " + std::to_string(arm.precondition->worst) +
               " as a window began, and may be at most " + std::to_string(arm.precondition->most));
}

/// Joules of all GPUs of the case, none where a card's counter does not resolve the window.
std::optional<double> CaseMeasurement::energy_within(const Window& window) const {
  const std::size_t watched = std::min(watched_gpus_, launch_.telemetry.size());
  if (watched == 0) return std::nullopt;
  double sum_j = 0;
  for (std::size_t gpu = 0; gpu < watched; ++gpu) {
    const auto taken_j = launch_.telemetry[gpu]->energy_within(begin_s(window), window.start_s + window.host_s);
    if (!taken_j) return std::nullopt;
    sum_j += *taken_j;
  }
  return sum_j;
}

// Windows of some steps are too short for the energy counter: one of more than a second, untimed, has enough updates.
void CaseMeasurement::keep_joules(Entry& entry) const {
  const ArmRecord& record = entry.record;
  if (launch_.telemetry.empty() || !uses_device_ || record.samples->windows.empty()) return;
  if (entry.runner->begins_afresh()) return;  // a window is one step, however short
  const double step_s = record.step_s().back();
  const auto steps_in = [&](double time_s) { return static_cast<std::int64_t>(std::ceil(time_s / step_s)); };
  const std::int64_t steps = steps_in(kEnergyWindow_s);
  const auto taken_j = energy_within(entry.runner->run(steps_in(kEnergyLeadIn_s), steps));
  if (taken_j) entry.record.metrics["joules_per_step"] = *taken_j / static_cast<double>(steps);
}

// After all windows: what fails here takes nothing from what was measured.
void CaseMeasurement::keep_extras(Entry& entry) {
  const auto keep = [&](const char* note, const std::function<void()>& extra) {
    try {
      extra();
    } catch (const std::exception& failure) {
      record_.notes[note] = entry.arm.name + ": " + without_folders(failure.what());
    }
  };
  if (!launch_.settings.quick) keep("joules_not_counted", [&] { keep_joules(entry); });
  if (uses_device_) keep("launches_not_counted", [&] { keep_launches(entry); });
}

// CUPTI makes calls slower.
void CaseMeasurement::keep_launches(Entry& entry) const {
  if (const auto launches = entry.runner->launches_per_step())
    entry.record.metrics["kernel_launches_per_step"] = *launches;
}

void CaseMeasurement::keep_order(const Samples& samples, const std::vector<Entry*>& usable,
                                 const std::vector<Entry>& all, const std::vector<std::size_t>& order) {
  CaseRecord::Sampling sampling;
  sampling.seed = case_seed(job_, launch_.settings);
  for (const Block& block : samples.blocks) {
    auto& places = sampling.blocks.emplace_back();
    for (const int arm : block)
      places.push_back(static_cast<std::size_t>(usable[static_cast<std::size_t>(arm)] - all.data()));
  }
  for (const std::size_t index : order) {
    if (all[index].record.result.ok()) sampling.allocation.push_back(index);
  }
  sampling.stop_reason = samples.stop_reason;
  sampling.planned_blocks = samples.planned_blocks;
  sampling.asked_half_width = launch_.settings.precision;
  sampling.reached_half_width = samples.half_width;
  sampling.discarded_blocks = samples.discarded_blocks;
  sampling.restarts = samples.restarts;
  record_.sampling = std::move(sampling);
}

void CaseMeasurement::keep_telemetry(double from_s, double to_s) {
  if (launch_.telemetry.empty() || !uses_device_) {
    record_.telemetry_missing = uses_device_ ? launch_.telemetry_missing : "no device in this case";
    return;
  }
  record_.telemetry = launch_.telemetry.front()->summary(from_s, to_s);
  for (std::size_t gpu = 1; gpu < std::min(watched_gpus_, launch_.telemetry.size()); ++gpu)
    record_.telemetry_others.push_back(launch_.telemetry[gpu]->summary(from_s, to_s));
  for (Telemetry* gpu : launch_.telemetry) gpu->forget_before(to_s);
}

void CaseMeasurement::require_plausible(const ArmRecord& arm) const {
  if (!launch_.context.contains("gpu") || !arm.cost || arm.cost->roof.empty()) return;
  const auto limit = physical_limit(arm.cost->roof, launch_.context.at("gpu"));
  if (!limit) return;
  const double work = arm.cost->roof.starts_with("gemm/") ? arm.cost->flops : arm.cost->bytes;
  const double rate = work / median(arm.step_s());
  if (rate > kImplausible * *limit) {
    throw Failed("implausible: arm " + arm.name + " reads " + std::to_string(rate / *limit * 100) + " % of what " +
                 arm.cost->roof + " can physically do");
  }
}

}  // namespace gpulift
