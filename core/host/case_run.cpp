#include "case_run.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "catalogue.hpp"
#include "core/cuda/error.hpp"
#include "core/harness/host_load.hpp"
#include "core/harness/host_runner.hpp"
#include "core/harness/nvml.hpp"
#include "core/harness/record_file.hpp"
#include "core/harness/sampler.hpp"
#include "core/harness/stop_rule.hpp"
#include "module_loader.hpp"
#include "planted_runner.hpp"
#include "plausibility.hpp"
#include "sampling_plan.hpp"
#include "worker.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPeakAllocated = "peak_allocated_bytes";
constexpr double kEnergyLeadIn_s = 0.3;  // the arm's own power before its energy counts
constexpr double kEnergyWindow_s = 1.2;  // 8 updates of a counter that is updated every 100 ms, and some to spare

/// A named profiler range for as long as it lives.
class Range {
 public:
  Range(DeviceSession* device, const std::string& name) : device_(device) {
    if (device_ != nullptr) device_->push_range(name);
  }
  ~Range() {
    if (device_ != nullptr) device_->pop_range();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  DeviceSession* device_;
};

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
  std::optional<double> launches_per_step() override { return runner_->launches_per_step(); }

 private:
  std::unique_ptr<ArmRunner> runner_;
  DeviceSession* device_;
  std::string name_;
};

/// `json` is that of a record or of an arm.
void set_skipped_for_memory(Json& json, const OutOfMemory& exhausted) {
  set_outcome(json, "skipped", std::string("out of memory: ") + exhausted.what(),
              "free the GPU's memory, or use a larger GPU");
}

bool is_python(const Arm& arm) { return arm.worker && arm.worker->python; }

/// The technique's side of a case: collects what it says and hands its arms on.
class CaseTrial : public Trial {
 public:
  CaseTrial(const Technique& technique, const Job& job, LaunchContext& launch,
            const std::function<void(const PreparedArms&)>& use)
      : technique_(technique), job_(job), launch_(launch), use_(use), point_(point_from_json(job.point)) {}

  const Point& point() const override { return point_; }
  Device& device() override {
    if (launch_.device == nullptr) skip(launch_.no_device.reason, launch_.no_device.remedy);
    return launch_.device->device();
  }
  bool has_device() const override { return launch_.device != nullptr; }
  std::uint64_t seed() const override { return case_seed(job_, launch_.settings); }
  void cost(const Cost& per_step) override { cost_ = per_step; }
  void check(Check same_result) override { check_ = std::move(same_result); }
  void note(const std::string& key, const std::string& value) override { notes_[key] = value; }
  std::optional<std::string> recall(const std::string& key) const override {
    return job_.recalled.contains(key) ? std::optional(job_.recalled.at(key).get<std::string>()) : std::nullopt;
  }
  [[noreturn]] void skip(const std::string& reason, const std::string& remedy) override {
    throw Skipped(reason, remedy);
  }

  void compare(std::vector<Arm> arms) override {
    if (compared_) throw std::logic_error("a technique calls compare() once");
    compared_ = true;
    std::vector<std::string> names;
    for (const Arm& arm : arms) names.push_back(arm.name);
    if (names != technique_.arms)
      throw std::logic_error("compare() must get the arms that the technique declares, in order");
    std::vector<std::string> python;
    for (const Arm& arm : arms) {
      if (is_python(arm)) python.push_back(arm.name);
    }
    if (python != technique_.python)
      throw std::logic_error("compare() must get the Python arms that the technique declares, in order");
    if (!check_.error && (check_.meaning.empty() || python.size() != arms.size()))
      throw std::logic_error("a technique says what the same result is (check) before it compares");
    use_({arms, check_, cost_, notes_});
  }

  bool compared() const { return compared_; }
  const Json& notes() const { return notes_; }

 private:
  const Technique& technique_;
  const Job& job_;
  LaunchContext& launch_;
  const std::function<void(const PreparedArms&)>& use_;
  Point point_;
  Cost cost_;
  Check check_;
  Json notes_ = Json::object();
  bool compared_ = false;
};

/// One arm on its way through a case.
struct Entry {
  Arm& arm;
  const Check& check;
  Cost cost;
  std::string label;
  bool baseline;
  Clock clock = Clock::kHost;  // that judges it
  Json json = {};
  std::unique_ptr<WorkerRunner> worker = {};  // until the arms are made
  std::unique_ptr<ArmRunner> runner = {};

  bool usable() const { return json.value("outcome", "ok") == "ok"; }
  double tolerance() const { return arm.tolerance.value_or(check.tolerance); }
};

class CaseMeasurement {
 public:
  CaseMeasurement(const Job& job, LaunchContext& launch, const Technique& technique, Json& record)
      : job_(job),
        launch_(launch),
        ceiling_(technique.ceiling && !job.is_duet()),
        whole_steps_(technique.whole_steps),
        device_(technique.needs_device || technique.whole_steps ? launch.device : nullptr),
        uses_device_(device_ != nullptr),
        record_(record) {}

  void measure(std::vector<Entry> entries) {
    const double begun_s = now_s();
    const auto order = allocation_order(entries.size());
    for (Entry& entry : entries) {
      if (!entry.arm.worker) prepare(entry);
    }
    for (const std::size_t place : order) {
      if (entries[place].arm.worker) prepare(entries[place]);  // its process allocates before it is checked
    }
    const double checked_s = now_s();
    for (const Entry& entry : entries) {
      if (entry.baseline && !entry.usable() && !ceiling_) {
        throw Skipped("the baseline cannot run: " + entry.json.value("reason", ""), entry.json.value("remedy", ""));
      }
    }
    record_["check"] = {{"meaning", entries.front().check.meaning}, {"tolerance", entries.front().check.tolerance}};
    std::vector<Entry*> usable;
    for (Entry& entry : entries) {
      if (entry.usable()) usable.push_back(&entry);
    }
    if (usable.empty()) throw Skipped("no arm can run here: " + entries.front().json.value("reason", ""), "");
    settle_clocks(usable);
    allocate(entries, order);
    const auto cpu_before = cpu_times();
    const double start_s = now_s();
    const Samples samples = sample(usable);
    const double sampled_s = now_s();
    write_host_load(cpu_before, cpu_times(), sampled_s - start_s);
    for (const Entry* entry : usable) {
      // Of a duet's head, or of the last arm.
      if (const auto planted = entry->runner->planted()) record_["notes"]["planted"] = std::to_string(*planted);
    }
    for (std::size_t i = 0; i < usable.size(); ++i) {
      write_samples(*usable[i], samples.arms[i]);
      if (whole_steps_ && !launch_.settings.quick) write_joules(*usable[i], samples.arms[i]);
    }
    if (whole_steps_ && uses_device_) {
      for (Entry* entry : usable) write_launches(*entry);
    }
    record_["arms"] = Json::array();
    for (const Entry& entry : entries) record_["arms"].push_back(entry.json);
    write_order(samples, usable, entries, order);
    write_telemetry(start_s, now_s());
    times_s_ = {{"windows", samples.windows_s},
                {"lead_in", samples.lead_in_s},
                {"before_compare", begun_s - case_start_s_},
                {"checks", checked_s - begun_s},
                {"allocation", start_s - checked_s},
                {"energy", now_s() - sampled_s}};
    for (const Entry* entry : usable) require_plausible(*entry, samples);
  }

  /// Where the time of the case went, in seconds by part. Calibration, warm-up and rests count as lead-in.
  const Json& times_s() const { return times_s_; }

 private:
  // Two clocks in one ratio would differ by what only one of them sees: the emptying of the queue behind a window.
  static void settle_clocks(const std::vector<Entry*>& usable) {
    const bool on_host =
        std::any_of(usable.begin(), usable.end(), [](const Entry* e) { return e->clock == Clock::kHost; });
    for (Entry* entry : usable) {
      if (entry->clock == Clock::kUnheld && on_host) entry->clock = Clock::kHost;
      entry->json["clock"] = entry->clock == Clock::kHost ? "host" : "device";
    }
  }

  // Check and memory with this arm alone; nothing is timed before every arm has passed.
  void prepare(Entry& entry) {
    entry.json = {{"name", entry.label}, {"role", entry.baseline ? "baseline" : "technique"}, {"outcome", "ok"}};
    if (!entry.arm.unavailable.empty()) {
      set_outcome(entry.json, "skipped", entry.arm.unavailable);
      return;
    }
    entry.json["cost"] = {{"bytes", entry.cost.bytes}, {"flops", entry.cost.flops}, {"items", entry.cost.items}};
    if (!entry.cost.item.empty()) entry.json["cost"]["item"] = entry.cost.item;
    if (!entry.cost.roof.empty()) entry.json["cost"]["roof"] = entry.cost.roof;
    try {
      const double error = entry.arm.worker ? check_worker(entry) : check_here(entry);
      if (!entry.usable()) return;
      if (!(error <= entry.tolerance())) {  // false for NaN too
        throw Failed("arm " + entry.label + " does not give the same result: error " + std::to_string(error) +
                     ", tolerance " + std::to_string(entry.tolerance()) + " (" + entry.check.meaning + ")");
      }
      entry.json["check_error"] = error;
      entry.json["check_tolerance"] = entry.tolerance();
    } catch (const NotSupported& unsupported) {
      set_outcome(entry.json, "skipped", unsupported.what());
    } catch (const OutOfMemory& exhausted) {  // what the arm took is free again, and the others may fit
      set_skipped_for_memory(entry.json, exhausted);
    }
  }

  double check_here(Entry& entry) {
    const Range range(device_, "check " + entry.label);
    if (device_ != nullptr) {
      entry.clock = entry.arm.clock;  // without a device there is the host's alone
      device_->reset_peak();
    }
    const Step step = entry.arm.make();
    const double error = checked_error(step, entry.check, device_, [&] {
      if (device_ == nullptr) return;
      const auto peak = device_->peak();
      entry.json["peak_device_bytes"] = peak.device_bytes;
      entry.json["peak_pinned_bytes"] = peak.pinned_bytes;
    });
    keep_metrics(entry, metrics_of(entry.arm, step, device_));
    return error;
  }

  // What a framework's own allocator says of an arm is exact; free memory of the device knows only what it reserved.
  static void keep_metrics(Entry& entry, const Json& metrics) {
    if (metrics.empty()) return;
    entry.json["metrics"] = metrics;
    if (metrics.contains(kPeakAllocated)) {
      entry.json["peak_device_bytes"] = static_cast<std::uint64_t>(metrics.at(kPeakAllocated).get<double>());
    }
  }

  double check_worker(Entry& entry) {
    RunSettings settings = launch_.settings;
    if (!is_planted(entry)) settings.plant = 0;
    Job job = job_;
    if (job.is_duet() && entry.baseline) job.module = job.base_module;  // the worker loads the build of its own side
    const bool of_base = job.is_duet() && entry.baseline && !settings.base_python.empty();
    const std::string& python = of_base ? settings.base_python : settings.python;
    const bool has_device = launch_.device != nullptr;
    uses_device_ = uses_device_ || (has_device && (is_python(entry.arm) || entry.arm.worker->device));
    auto worker = std::make_unique<WorkerRunner>(WorkerStart{job, settings, python, has_device}, entry.arm);
    const Json& hello = worker->hello();
    if (hello.contains("skipped")) {
      set_outcome(entry.json, "skipped", hello.at("skipped"), hello.value("remedy", ""));
      return 0;
    }
    keep_notes(entry, hello);
    entry.json["peak_host_bytes"] = hello.at("peak_host_bytes");
    keep_metrics(entry, hello.value("metrics", Json::object()));
    if (hello.at("has_events")) entry.clock = Clock::kUnheld;
    entry.worker = std::move(worker);
    return hello.at("check_error");
  }

  // All arms of one side have the same interpreter, and so the same notes.
  void keep_notes(const Entry& entry, const Json& hello) {
    const std::string side = job_.is_duet() && entry.baseline ? "base:" : "";
    const Json notes = hello.value("notes", Json::object());  // outlives the loop, unlike a temporary in it
    for (const auto& [key, value] : notes.items()) record_["notes"][side + key] = value;
  }

  // The arm that allocates first alternates between launches: where buffers lie has an effect of its own (seen: 0.1
  // to 0.6 % between equal workers, for the one that starts first).
  std::vector<std::size_t> allocation_order(std::size_t arms) const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < arms; ++i) order.push_back((i + static_cast<std::size_t>(job_.launch)) % arms);
    return order;
  }

  void allocate(std::vector<Entry>& entries, const std::vector<std::size_t>& order) {
    for (const std::size_t place : order) {
      Entry& entry = entries[place];
      if (!entry.usable()) continue;
      if (entry.worker != nullptr) {  // it has its buffers
        entry.worker->judge_by(entry.clock);
        entry.runner = std::move(entry.worker);
      } else {
        entry.runner = runner_of(entry, entry.arm.make());
      }
    }
  }

  std::unique_ptr<ArmRunner> runner_of(const Entry& entry, Step step) {
    if (!is_planted(entry)) return plain_runner_of(entry, std::move(step));
    return std::make_unique<PlantedRunner>(
        std::move(step), entry.clock, launch_.settings.plant,
        device_ == nullptr ? make_host_work() : device_->extra_work(),
        [&](Step with_work) { return plain_runner_of(entry, std::move(with_work)); });
  }

  bool is_planted(const Entry& entry) const {
    return launch_.settings.plant > 0 && (!job_.is_duet() || !entry.baseline);
  }

  std::unique_ptr<ArmRunner> plain_runner_of(const Entry& entry, Step step) {
    if (device_ == nullptr) return std::make_unique<HostRunner>(std::move(step));
    return std::make_unique<RangedRunner>(device_->runner(std::move(step), entry.clock), device_, entry.label);
  }

  Samples sample(const std::vector<Entry*>& entries) {
    std::vector<ArmRunner*> runners;
    std::vector<Clock> clocks;
    for (const Entry* entry : entries) {
      runners.push_back(entry->runner.get());
      clocks.push_back(entry->clock);
    }
    const auto disturbed = [this](double from_s, double to_s) {
      return launch_.telemetry != nullptr && is_hardware_slowdown(launch_.telemetry->throttle_between(from_s, to_s));
    };
    return sample_arms(runners, clocks, !ceiling_, plan(entries), disturbed);
  }

  SamplingPlan plan(const std::vector<Entry*>& entries) const {
    const bool draws_power = std::any_of(entries.begin(), entries.end(),
                                         [](const Entry* entry) { return entry->cost.roof.starts_with("gemm/"); });
    const bool by_events =
        std::none_of(entries.begin(), entries.end(), [](const Entry* entry) { return entry->clock == Clock::kHost; });
    SamplingPlan plan = sampling_plan(job_, launch_.settings,
                                      {.count = entries.size(),
                                       .on_device = device_ != nullptr,
                                       .by_events = by_events,
                                       .ceiling = ceiling_,
                                       .draws_power = draws_power});
    plan.seed = case_seed(job_, launch_.settings);
    return plan;
  }

  void write_samples(Entry& entry, const ArmSamples& samples) const {
    entry.json["steps_per_window"] = samples.steps_per_window;
    entry.json["lead_in_steps"] = samples.lead_in_steps;
    entry.json["held"] =
        std::all_of(samples.windows.begin(), samples.windows.end(), [](const Window& window) { return window.held; });
    Json windows{{"start_s", Json::array()}, {"host_s", Json::array()}, {"enqueue_s", Json::array()}};
    for (const Window& window : samples.windows) {
      windows["start_s"].push_back(window.start_s);
      windows["host_s"].push_back(window.host_s);
      windows["enqueue_s"].push_back(window.enqueue_s);
      if (window.device_s) windows["device_s"].push_back(*window.device_s);
    }
    // A clock per window or none at all: a list with gaps would be read at the wrong windows.
    const bool clocks = std::all_of(samples.windows.begin(), samples.windows.end(),
                                    [](const Window& window) { return window.sm_clock_hz.has_value(); });
    if (clocks) {
      for (const Window& window : samples.windows) windows["sm_clock_hz"].push_back(*window.sm_clock_hz);
    }
    if (Json energy_j = energy_of(samples); !energy_j.empty()) windows["energy_j"] = std::move(energy_j);
    entry.json["windows"] = std::move(windows);
  }

  // Windows of some steps are too short for the energy counter: one of more than a second, untimed, has enough updates.
  void write_joules(Entry& entry, const ArmSamples& samples) const {
    if (launch_.telemetry == nullptr || !uses_device_ || samples.windows.empty()) return;
    const double step_s = judged_s(samples.windows.back(), entry.clock) / static_cast<double>(samples.steps_per_window);
    const auto steps_in = [&](double time_s) { return static_cast<std::int64_t>(std::ceil(time_s / step_s)); };
    const std::int64_t steps = steps_in(kEnergyWindow_s);
    const Window window = entry.runner->run(steps_in(kEnergyLeadIn_s), steps);
    const double end_s = window.start_s + window.host_s;
    const auto taken_j = launch_.telemetry->energy_within(end_s - window.device_s.value_or(window.host_s), end_s);
    if (taken_j) entry.json["metrics"]["joules_per_step"] = *taken_j / static_cast<double>(steps);
  }

  // After all windows, since CUPTI makes calls slower. What fails here takes nothing from what was measured.
  void write_launches(Entry& entry) {
    try {
      if (const auto launches = entry.runner->launches_per_step()) {
        entry.json["metrics"]["kernel_launches_per_step"] = *launches;
      }
    } catch (const std::exception& failure) {
      record_["notes"]["launches_not_counted"] = entry.arm.name + ": " + failure.what();
    }
  }

  /// Joules of the card in each window, null where its counter does not resolve the window; empty where all are null.
  Json energy_of(const ArmSamples& samples) const {
    if (launch_.telemetry == nullptr || !uses_device_) return Json::array();
    Json energy_j = Json::array();
    bool known = false;
    for (const Window& window : samples.windows) {
      // The host's time of a window holds the lead-in that ran with it; the device's is that of the counted steps.
      const double end_s = window.start_s + window.host_s;
      const auto taken_j = launch_.telemetry->energy_within(end_s - window.device_s.value_or(window.host_s), end_s);
      energy_j.push_back(taken_j ? Json(*taken_j) : Json(nullptr));
      known = known || taken_j.has_value();
    }
    return known ? energy_j : Json::array();
  }

  // Blocks name arms by their place among all arms of the record, skipped ones included.
  void write_order(const Samples& samples, const std::vector<Entry*>& usable, const std::vector<Entry>& all,
                   const std::vector<std::size_t>& order) {
    const auto place = [&](std::size_t index) { return usable[index] - all.data(); };
    Json blocks = Json::array();
    for (const Block& block : samples.blocks) {
      Json places = Json::array();
      for (const int arm : block) places.push_back(place(static_cast<std::size_t>(arm)));
      blocks.push_back(std::move(places));
    }
    Json allocation = Json::array();
    for (const std::size_t index : order) {
      if (all[index].usable()) allocation.push_back(index);
    }
    record_["order"] = {{"seed", case_seed(job_, launch_.settings)}, {"blocks", blocks}, {"allocation", allocation}};
    record_["stop"] = {{"reason", samples.stop_reason == StopReason::kPrecise ? "precise" : "budget"},
                       {"blocks", samples.blocks.size()},
                       {"asked_half_width", launch_.settings.precision}};
    if (samples.half_width) record_["stop"]["reached_half_width"] = *samples.half_width;
    record_["discarded_blocks"] = samples.discarded_blocks;
    record_["restarts"] = samples.restarts;
    if (samples.blocks.empty()) throw Failed("the hardware slowed itself down in every block: nothing can be said");
  }

  void write_host_load(const std::optional<CpuTimes>& before, const std::optional<CpuTimes>& after, double time_s) {
    if (!before || !after) return;
    if (Json load = host_load(*before, *after, time_s); !load.is_null()) record_["host_load"] = std::move(load);
  }

  void write_telemetry(double from_s, double to_s) {
    if (launch_.telemetry == nullptr || !uses_device_) {
      record_["telemetry_missing"] = uses_device_ ? launch_.telemetry_missing : "no device in this case";
      return;
    }
    record_["telemetry"] = launch_.telemetry->summary(from_s, to_s);
    launch_.telemetry->forget_before(to_s);
  }

  void require_plausible(const Entry& entry, const Samples& samples) const {
    if (!launch_.context.contains("gpu") || entry.cost.roof.empty()) return;
    const auto limit = physical_limit(entry.cost.roof, launch_.context.at("gpu"));
    if (!limit) return;
    std::vector<double> step_s;
    const auto& windows = entry.json.at("windows");
    const char* clock = entry.json.at("clock") == "host" ? "host_s" : "device_s";
    for (const double window_s : windows.at(clock)) {
      step_s.push_back(window_s / entry.json.at("steps_per_window").get<double>());
    }
    if (samples.blocks.empty()) return;
    const double work = entry.cost.roof.starts_with("gemm/") ? entry.cost.flops : entry.cost.bytes;
    const double rate = work / median(step_s);
    if (rate > kImplausible * *limit) {
      throw Failed("implausible: arm " + entry.label + " reads " + std::to_string(rate / *limit * 100) + " % of what " +
                   entry.cost.roof + " can physically do");
    }
  }

  const Job& job_;
  LaunchContext& launch_;
  bool ceiling_;
  bool whole_steps_;
  DeviceSession* device_;
  bool uses_device_;  // here, or in a Python worker
  Json& record_;
  double case_start_s_ = now_s();
  Json times_s_ = Json::object();
};

Cost cost_of(const Arm& arm, const Cost& common) { return arm.cost.value_or(common); }

void measure_technique(const Job& job, LaunchContext& launch, Json& record, CaseMeasurement& measurement,
                       const Technique& technique) {
  Json notes;
  const auto use = [&](const PreparedArms& prepared) {
    std::vector<Entry> entries;
    for (Arm& arm : prepared.arms) {
      entries.push_back({arm, prepared.check, cost_of(arm, prepared.cost), arm.name, entries.empty()});
    }
    measurement.measure(std::move(entries));
  };
  const std::function<void(const PreparedArms&)> measure = use;
  CaseTrial trial(technique, job, launch, measure);
  technique.run(trial);
  if (!trial.notes().empty()) record["notes"].update(trial.notes());
  if (!trial.compared()) throw std::logic_error("the technique returned without comparing its arms");
}

/// An arm may note something while it is made. What the base noted otherwise than the head has its side's name.
void keep_notes_of_both(Json& record, const Json& head, const Json& base) {
  for (const auto& [key, value] : head.items()) record["notes"][key] = value;
  for (const auto& [key, value] : base.items()) {
    if (!head.contains(key) || head.at(key) != value) record["notes"]["base:" + key] = value;
  }
}

// One build's case runs inside the other's compare(), so that the arms of both live at the same time. What the outer
// one searched and noted (an algorithm, a calibrated length), the inner one recalls: else both would be right and not
// the same. The outer one makes its buffers and streams first, which has an effect of its own (seen: 1 % in copies of
// both directions at once): every two launches they change places, so that four launches hold each order of arms with
// each. The seed counts, too: a gate takes its launches in several runs, whose seeds go on where the launches of the
// run before ended, and each run numbers its own from 0.
void measure_duet(const Job& job, LaunchContext& launch, Json& record, CaseMeasurement& measurement,
                  const Technique& head, const Technique& base) {
  const auto arm_of = [&job](const PreparedArms& prepared) -> Arm& {
    for (Arm& arm : prepared.arms) {
      if (arm.name == job.arm) return arm;
    }
    throw std::logic_error("no arm " + job.arm + " in one of the builds");
  };
  const bool head_outside = (launch.settings.seed + static_cast<std::uint64_t>(job.launch)) / 2 % 2 == 0;
  run_up_to_compare(head_outside ? head : base, job, launch, [&](const PreparedArms& outer) {
    if (head_outside && !outer.notes.empty()) record["notes"] = outer.notes;
    Job inner_job = job;
    inner_job.recalled.update(outer.notes);
    run_up_to_compare(head_outside ? base : head, inner_job, launch, [&](const PreparedArms& inner) {
      const PreparedArms& ours = head_outside ? outer : inner;
      const PreparedArms& theirs = head_outside ? inner : outer;
      Arm& base_arm = arm_of(theirs);
      Arm& head_arm = arm_of(ours);
      std::vector<Entry> entries;
      entries.push_back({base_arm, theirs.check, cost_of(base_arm, theirs.cost), "base:" + job.arm, true});
      entries.push_back({head_arm, ours.check, cost_of(head_arm, ours.cost), "head:" + job.arm, false});
      measurement.measure(std::move(entries));
      keep_notes_of_both(record, ours.notes, theirs.notes);
    });
  });
}

void measure_job(const Job& job, LaunchContext& launch, Json& record) {
  const double start_s = now_s();
  const Module head(job.module);
  const Technique& technique = head.technique();
  record["ceiling"] = technique.ceiling;  // the manifest said the same, unless the module was built anew since
  record["question"] = technique.question;
  record["expectation"] = technique.expectation;
  record["claims"] = technique.claims;
  if (technique.needs_device && launch.device == nullptr)
    throw Skipped(launch.no_device.reason, launch.no_device.remedy);
  const Range range(launch.device, full_case_id(job.technique, job.case_id));
  CaseMeasurement measurement(job, launch, technique, record);
  if (job.is_duet()) {
    const Module base = Module::load_copy(job.base_module);
    measure_duet(job, launch, record, measurement, technique, base.technique());
  } else {
    measure_technique(job, launch, record, measurement, technique);
  }
  record["time_s"] = measurement.times_s();
  record["time_s"]["total"] = now_s() - start_s;
}

}  // namespace

std::uint64_t case_seed(const Job& job, const RunSettings& settings) {
  // FNV-1a over the case's name: stable from build to build, unlike std::hash.
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char letter : full_case_id(job.technique, job.case_id)) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  // The mixing of SplitMix64 (Steele, Lea, Flood 2014): launches differ in low bits alone before it.
  std::uint64_t mixed = hash + 0x9E3779B97F4A7C15ULL * (1000 * settings.seed + static_cast<std::uint64_t>(job.launch));
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
  // JSON numbers above 2^53 lose digits in some readers.
  return (mixed ^ (mixed >> 31)) >> 12;
}

double checked_error(const Step& step, const Check& check, DeviceSession* device,
                     const std::function<void()>& after_step) {
  const StreamHandle stream = device != nullptr ? device->stream() : nullptr;
  if (check.poison) check.poison(stream);
  step(stream);
  if (device != nullptr) device->synchronize();
  after_step();
  return check.error(stream);
}

Json metrics_of(const Arm& arm, const Step& step, DeviceSession* device) {
  Json metrics = Json::object();
  if (!arm.metrics) return metrics;
  for (const auto& [name, value] : arm.metrics(step, device != nullptr ? device->stream() : nullptr)) {
    metrics[name] = value;
  }
  require_finite(metrics, "arms." + arm.name + ".metrics");  // a worker's line could not even say such a number
  if (device != nullptr) device->synchronize();
  return metrics;
}

void run_up_to_compare(const Technique& technique, const Job& job, LaunchContext& launch,
                       const std::function<void(const PreparedArms&)>& use) {
  CaseTrial trial(technique, job, launch, use);
  technique.run(trial);
}

Json run_case(const Job& job, LaunchContext& launch) {
  Json record = begin_record(job, launch.settings);
  try {
    measure_job(job, launch, record);
    record["outcome"] = "ok";
    require_finite(record);
  } catch (const Skipped& skipped) {
    set_outcome(record, "skipped", skipped.what(), skipped.remedy());
  } catch (const OutOfMemory& exhausted) {
    set_skipped_for_memory(record, exhausted);
  } catch (const NotSupported& unsupported) {
    set_outcome(record, "skipped", unsupported.what());
  } catch (const Failed& failed) {
    set_outcome(record, "failed", failed.what());
  } catch (const std::domain_error& not_finite) {
    record.erase("arms");
    set_outcome(record, "failed", not_finite.what());
  } catch (const std::exception& error) {
    set_outcome(record, "error", error.what());
  }
  record["context"] = launch.context;
  return record;
}

}  // namespace gpulift
