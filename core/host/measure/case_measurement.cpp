#include "case_measurement.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/harness/host_load.hpp"
#include "core/harness/host_runner.hpp"
#include "core/harness/stop_rule.hpp"
#include "core/host/record/plausibility.hpp"
#include "planted_runner.hpp"
#include "sampling_plan.hpp"
#include "trial.hpp"

namespace gpulift {
namespace {

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
  void profile_step() override { runner_->profile_step(); }

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

// Empty where an arm counts none.
std::vector<double> items_of(const std::vector<Entry*>& usable) {
  std::vector<double> items;
  for (const Entry* entry : usable) {
    const double of_step = entry->record.cost.value_or(Cost{}).items;
    if (of_step <= 0) return {};
    items.push_back(of_step);
  }
  return items;
}

// How fast the host was beside the arm: the same launches were seen to take it twice as long while others used it.
void keep_empty_launches(ArmRecord& record) {
  std::vector<double> found_s;
  for (const Window& window : record.samples->windows) {
    if (window.empty_launch_s) found_s.push_back(*window.empty_launch_s);
  }
  if (!found_s.empty()) record.metrics["empty_launch_s"] = median(found_s);
}

void keep_clock_error(ArmRecord& record) {
  for (const Window& window : record.samples->windows) {
    if (!window.clock_error_s) continue;
    double& worst_s = record.metrics["clock_error_s"];
    worst_s = std::max(worst_s, *window.clock_error_s);
  }
}

void require_aligned_clocks(const ArmRecord& arm) {
  for (const Window& window : arm.samples->windows) {
    if (window.clock_error_s.value_or(0) <= kLargestClockError * window.host_s) continue;
    throw Failed("arm " + arm.name + ": the clocks of its hosts are known to " +
                 std::to_string(*window.clock_error_s * 1e6) + " us, more than 1 % of a window of " +
                 std::to_string(window.host_s * 1e3) + " ms");
  }
}

void require_own_time(const ArmRecord& arm) {
  const ArmSamples& samples = *arm.samples;
  const auto tells_other = [&](const Window& window) {
    return tells_other_time(window, samples.steps_per_window, samples.lead_in_steps);
  };
  if (arm.clock == Clock::kHost || !std::all_of(samples.windows.begin(), samples.windows.end(), tells_other)) return;
  const Window& window = samples.windows.front();
  throw Failed("arm " + arm.name + ": its marks are not around its work: a window took " +
               std::to_string(*window.device_s * 1e3) + " ms between them, and " + std::to_string(window.host_s * 1e3) +
               " ms by the host's clock");
}

// Windows without this value are none with a wrong one.
void refuse_implausible_cpu(const ArmRecord& record, ArmSamples& samples, int cores,
                            std::map<std::string, std::string>& notes) {
  const auto wrong = std::find_if(samples.windows.begin(), samples.windows.end(), [&](const Window& window) {
    return exceeds_all_cores(window.cpu_s.value_or(0), window.host_s, cores);
  });
  if (wrong == samples.windows.end()) return;
  std::ostringstream why;
  why << record.name << ": " << *wrong->cpu_s << " s in a window of " << wrong->host_s << " s on " << cores << " cores";
  notes["cpu_seconds_refused"] = why.str();
  for (Window& window : samples.windows) window.cpu_s.reset();
}

void keep_samples(ArmRecord& record, ArmSamples samples, const GpuWatch& watch) {
  bool known = false;
  for (const Window& window : samples.windows) {
    record.energy_j.push_back(watch.energy_within(window, record.ranks));
    known = known || record.energy_j.back().has_value();
    if (record.precondition && window.precondition)
      record.precondition->worst = std::max(record.precondition->worst, *window.precondition);
  }
  if (!known) record.energy_j.clear();
  record.samples = std::move(samples);
  keep_empty_launches(record);
  keep_clock_error(record);
}

// Windows of some steps are too short for the energy counter: one of more than a second, untimed, has enough updates.
void keep_joules(Entry& entry, const GpuWatch& watch) {
  const ArmRecord& record = entry.record;
  if (watch.sees_none() || record.samples->windows.empty()) return;
  if (entry.runner->begins_afresh()) return;  // a window is one step, however short
  const double step_s = record.step_s().back();
  const auto steps_in = [&](double time_s) { return static_cast<std::int64_t>(std::ceil(time_s / step_s)); };
  const std::int64_t steps = steps_in(kEnergyWindow_s);
  const auto taken_j = watch.energy_within(entry.runner->run(steps_in(kEnergyLeadIn_s), steps), record.ranks);
  if (taken_j) entry.record.metrics["joules_per_step"] = *taken_j / static_cast<double>(steps);
}

// CUPTI makes calls slower.
void keep_launches(Entry& entry) {
  if (const auto launches = entry.runner->launches_per_step())
    entry.record.metrics["kernel_launches_per_step"] = *launches;
}

void profile(Entry& entry) {
  if (entry.record.ranks > 1)
    throw Skipped("counters are read of one process, and arm " + entry.arm.name + " has ranks", "");
  entry.runner->profile_step();
}

void require_precondition(const ArmRecord& arm) {
  if (!arm.precondition || arm.precondition->worst <= arm.precondition->most) return;
  throw Failed("arm " + arm.name + ": " + arm.precondition->name + " was " + std::to_string(arm.precondition->worst) +
               " as a window began, and may be at most " + std::to_string(arm.precondition->most));
}

}  // namespace

CaseMeasurement::CaseMeasurement(const Job& job, LaunchContext& launch, const Technique& technique, CaseRecord& record)
    : job_(job),
      launch_(launch),
      ceiling_(technique.ceiling && !job.is_duet()),
      whole_steps_(technique.whole_steps),
      device_(technique.gpus > 0 || technique.whole_steps ? launch.device : nullptr),
      record_(record),
      case_start_s_(now_s()) {}

void CaseMeasurement::measure(std::vector<Entry> entries) {
  const double begun_s = now_s();
  const auto order = allocation_order(entries.size());
  ArmChecks checks(job_, launch_, device_, record_);
  checks.check(entries, order);
  const GpuWatch watch(launch_, checks.watched_gpus(), checks.uses_device());
  const double checked_s = now_s();
  for (const Entry& entry : entries) {
    const Result& result = entry.record.result;
    if (entry.record.baseline && !result.ok() && !ceiling_ && !launch_.settings.profile)
      throw Skipped("the baseline cannot run: " + result.reason, result.remedy);
  }
  record_.check_meaning = entries.front().check.meaning;
  record_.check_tolerance = entries.front().check.tolerance;
  const auto usable = usable_of(entries);
  if (usable.empty()) throw Skipped("no arm can run here: " + entries.front().record.result.reason, "");
  settle_clocks(usable);
  allocate(entries, order);
  if (launch_.settings.profile) {
    for (Entry* entry : usable) profile(*entry);
    for (Entry& entry : entries) record_.arms.push_back(std::move(entry.record));
    return;
  }
  const auto cpu_before = cpu_times();
  const double start_s = now_s();
  Samples samples = sample(usable, watch);
  const double sampled_s = now_s();
  if (const auto cpu_after = cpu_times(); cpu_before && cpu_after)
    record_.host_load = host_load(*cpu_before, *cpu_after, sampled_s - start_s);
  keep_order(samples, usable, entries, order);
  for (std::size_t i = 0; i < usable.size(); ++i) {
    Entry& entry = *usable[i];
    // Of a duet's head, or of the last arm.
    if (const auto planted = entry.runner->planted()) record_.notes["planted"] = std::to_string(*planted);
    const auto cores = nlohmann::ordered_json::json_pointer("/host/cores");
    refuse_implausible_cpu(entry.record, samples.arms[i], launch_.context.value(cores, 0), record_.notes);
    keep_samples(entry.record, std::move(samples.arms[i]), watch);
  }
  if (whole_steps_) {
    for (Entry* entry : usable) keep_extras(*entry, watch, checks.uses_device());
  }
  watch.keep(record_, start_s, now_s());
  record_.time_s = {{"windows", samples.windows_s},
                    {"lead_in", samples.lead_in_s},
                    {"wake", samples.wake_s},
                    {"before_compare", begun_s - case_start_s_},
                    {"allocation", start_s - checked_s},
                    {"energy", now_s() - sampled_s}};
  record_.time_s.merge(checks.time_s(checked_s - begun_s));
  for (Entry& entry : entries) record_.arms.push_back(std::move(entry.record));
  if (record_.sampling->blocks.empty())
    throw Failed("the hardware slowed itself down in every block: nothing can be said");
  for (const ArmRecord& arm : record_.arms) {
    if (!arm.result.ok()) continue;
    require_precondition(arm);
    require_aligned_clocks(arm);
    require_own_time(arm);
    require_plausible(arm);
  }
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
  if (!is_planted(entry, job_, launch_.settings)) return plain_runner_of(entry, std::move(work));
  return std::make_unique<PlantedRunner>(
      work, entry.record.clock, launch_.settings.plant, device_ == nullptr ? make_host_work() : device_->extra_work(),
      [&](Work with_extra) { return plain_runner_of(entry, std::move(with_extra)); });
}

std::unique_ptr<ArmRunner> CaseMeasurement::plain_runner_of(const Entry& entry, Work work) {
  // Child processes here are other arms' workers.
  if (device_ == nullptr) return std::make_unique<HostRunner>(std::move(work), HostRunner::Counted::kProcess);
  return std::make_unique<RangedRunner>(device_->runner(std::move(work), entry.record.clock), device_,
                                        entry.record.name);
}

Samples CaseMeasurement::sample(const std::vector<Entry*>& usable, const GpuWatch& watch) const {
  std::vector<ArmRunner*> runners;
  std::vector<Clock> clocks;
  for (const Entry* entry : usable) {
    runners.push_back(entry->runner.get());
    clocks.push_back(entry->record.clock);
  }
  const auto disturbed = [&](double from_s, double to_s) { return watch.slowed_by_hardware(from_s, to_s); };
  const auto make_plan = [&](std::span<const double> step_s) { return plan(usable, step_s); };
  return sample_arms(runners, clocks, !ceiling_, make_plan, {.disturbed = disturbed, .tell = launch_.tell});
}

SamplingPlan CaseMeasurement::plan(const std::vector<Entry*>& usable, std::span<const double> step_s) const {
  const bool at_power_cap = std::any_of(usable.begin(), usable.end(), [](const Entry* entry) {
    return draws_power(entry->record.cost.value_or(Cost{}).roof);
  });
  const bool rest =
      std::any_of(usable.begin(), usable.end(), [](const Entry* entry) { return entry->runner->rests(); });
  const bool by_events = std::none_of(usable.begin(), usable.end(),
                                      [](const Entry* entry) { return entry->record.clock == Clock::kHost; });
  double clock_error_s = 0;
  for (const Entry* entry : usable) clock_error_s = std::max(clock_error_s, entry->runner->clock_error_s());
  SamplingPlan plan = sampling_plan(job_, launch_.settings,
                                    {.count = usable.size(),
                                     .on_device = device_ != nullptr,
                                     .by_events = by_events,
                                     .ceiling = ceiling_,
                                     .rest = rest,
                                     .draws_power = at_power_cap,
                                     .clock_error_s = clock_error_s,
                                     .step_s = step_s});
  plan.seed = case_seed(job_, launch_.settings);
  plan.items = items_of(usable);
  return plan;
}

// After all windows: what fails here takes nothing from what was measured. In one launch: counts do not vary, and
// joules of a step are a fact beside its time, without an interval.
void CaseMeasurement::keep_extras(Entry& entry, const GpuWatch& watch, bool uses_device) {
  if (job_.earlier.contains(entry.record.name) || (watch.sees_none() && !uses_device)) return;
  const auto keep = [&](const char* note, const std::function<void()>& extra) {
    try {
      extra();
    } catch (const std::exception& failure) {
      record_.notes[note] = entry.arm.name + ": " + without_folders(failure.what());
    }
  };
  keep("joules_not_counted", [&] {
    entry.runner->wake();
    if (!launch_.settings.quick) keep_joules(entry, watch);
  });
  keep("launches_not_counted", [&] {
    if (uses_device) keep_launches(entry);
  });
  keep("extras_left_awake", [&] { entry.runner->rest(); });
}

void CaseMeasurement::keep_order(const Samples& samples, const std::vector<Entry*>& usable,
                                 const std::vector<Entry>& all, const std::vector<std::size_t>& order) {
  CaseRecord::Sampling sampling;
  sampling.seed = case_seed(job_, launch_.settings);
  const auto place_of = [&](int arm) {
    return static_cast<std::size_t>(usable[static_cast<std::size_t>(arm)] - all.data());
  };
  for (const Block& block : samples.blocks) {
    auto& places = sampling.blocks.emplace_back();
    for (const int arm : block) places.push_back(place_of(arm));
  }
  for (const int arm : samples.visits) sampling.visits.push_back(place_of(arm));
  sampling.dropped_visits = samples.dropped_visits;
  for (const std::size_t index : order) {
    if (all[index].record.result.ok()) sampling.allocation.push_back(index);
  }
  sampling.stop_reason = samples.stop_reason;
  sampling.planned_blocks = samples.planned_blocks;
  sampling.rest_s = samples.rest_s;
  sampling.asked_half_width = launch_.settings.precision;
  sampling.reached_half_width = samples.half_width;
  sampling.discarded_blocks = samples.discarded_blocks;
  sampling.restarts = samples.restarts;
  record_.sampling = std::move(sampling);
}

void CaseMeasurement::require_plausible(const ArmRecord& arm) const {
  if (!launch_.context.contains("gpu") || !arm.cost || arm.cost->roof.empty()) return;
  const auto limit = physical_limit(arm.cost->roof, launch_.context.at("gpu"));
  if (!limit) return;
  const double rate = work_under_roof(*arm.cost) / median(arm.step_s());
  if (rate > kImplausible * *limit) {
    throw Failed("implausible: arm " + arm.name + " reads " + std::to_string(rate / *limit * 100) + " % of what " +
                 arm.cost->roof + " can physically do");
  }
}

}  // namespace gpulift
