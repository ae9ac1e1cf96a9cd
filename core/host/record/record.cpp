#include "record.hpp"

#include <algorithm>
#include <cmath>

#include "core/harness/environment.hpp"
#include "core/harness/record_file.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kSkipped:
      return "skipped";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kError:
      break;
  }
  return "error";
}

void write(Json& json, const Result& result) {
  if (result.ok()) {
    json["outcome"] = "ok";
  } else {
    set_outcome(json, name_of(result.outcome), result.reason, result.remedy);
  }
}

Json to_json(const Cost& cost) {
  Json json{{"bytes", cost.bytes}, {"flops", cost.flops}, {"items", cost.items}};
  if (!cost.item.empty()) json["item"] = cost.item;
  if (!cost.roof.empty()) json["roof"] = cost.roof;
  return json;
}

/// To the nanosecond, which no clock here is finer than: the digits beyond are a third of a record.
double to_nanosecond(double time_s) {
  constexpr double kPerSecond = 1e9;
  return std::round(time_s * kPerSecond) / kPerSecond;
}

/// A value per window, or none at all: a list with gaps would be read at the wrong windows.
void put_of_each(Json& windows, const char* key, const ArmSamples& samples, std::optional<double> Window::* value,
                 double (*rounded)(double)) {
  const bool all = std::all_of(samples.windows.begin(), samples.windows.end(),
                               [value](const Window& window) { return (window.*value).has_value(); });
  if (!all) return;
  for (const Window& window : samples.windows) windows[key].push_back(rounded(*(window.*value)));
}

Json windows_of(const ArmRecord& arm) {
  const ArmSamples& samples = *arm.samples;
  Json windows{{"start_s", Json::array()}, {"host_s", Json::array()}, {"enqueue_s", Json::array()}};
  for (const Window& window : samples.windows) {
    windows["start_s"].push_back(to_nanosecond(window.start_s));
    windows["host_s"].push_back(to_nanosecond(window.host_s));
    windows["enqueue_s"].push_back(to_nanosecond(window.enqueue_s));
  }
  put_of_each(windows, "device_s", samples, &Window::device_s, to_nanosecond);
  put_of_each(windows, "sm_clock_hz", samples, &Window::sm_clock_hz, std::round);
  put_of_each(windows, "cpu_s", samples, &Window::cpu_s, to_nanosecond);
  for (const auto& energy_j : arm.energy_j) windows["energy_j"].push_back(energy_j ? Json(*energy_j) : Json(nullptr));
  return windows;
}

void write_samples(Json& json, const ArmRecord& arm) {
  const ArmSamples& samples = *arm.samples;
  json["clock"] = arm.clock == Clock::kHost ? "host" : "device";
  json["steps_per_window"] = samples.steps_per_window;
  json["lead_in_steps"] = samples.lead_in_steps;
  json["held"] =
      std::all_of(samples.windows.begin(), samples.windows.end(), [](const Window& window) { return window.held; });
  json["windows"] = windows_of(arm);
}

Json to_json(const ArmRecord& arm) {
  Json json{{"name", arm.name}, {"role", arm.baseline ? "baseline" : "technique"}};
  write(json, arm.result);
  if (arm.cost) json["cost"] = to_json(*arm.cost);
  if (arm.ranks > 1) json["ranks"] = arm.ranks;
  for (const auto& [name, value] : arm.environment) json["environment"][name] = recorded_value(name, value);
  put(json, "peak_device_bytes", arm.peak_device_bytes);
  put(json, "peak_pinned_bytes", arm.peak_pinned_bytes);
  put(json, "peak_host_bytes", arm.peak_host_bytes);
  if (!arm.metrics.empty()) json["metrics"] = arm.metrics;
  if (arm.check_error) {
    json["check_error"] = *arm.check_error;
    json["check_tolerance"] = arm.check_tolerance;
  }
  if (!arm.checked) json["checked"] = false;
  if (arm.precondition) {
    json["precondition"] = {
        {"name", arm.precondition->name}, {"most", arm.precondition->most}, {"worst", arm.precondition->worst}};
  }
  if (arm.samples) write_samples(json, arm);
  return json;
}

void write(Json& json, const CaseRecord::Sampling& sampling) {
  json["order"] = {{"seed", sampling.seed}, {"blocks", sampling.blocks}, {"allocation", sampling.allocation}};
  if (!sampling.visits.empty()) json["order"]["visits"] = sampling.visits;
  json["stop"] = {{"reason", sampling.stop_reason == StopReason::kPrecise ? "precise" : "budget"},
                  {"blocks", sampling.blocks.size()},
                  {"planned_blocks", sampling.planned_blocks},
                  {"asked_half_width", sampling.asked_half_width}};
  put(json["stop"], "reached_half_width", sampling.reached_half_width);
  if (sampling.dropped_visits > 0) json["stop"]["dropped_visits"] = sampling.dropped_visits;
  if (sampling.rest_s > 0) json["stop"]["rest_s"] = sampling.rest_s;
  json["discarded_blocks"] = sampling.discarded_blocks;
  json["restarts"] = sampling.restarts;
}

void write_telemetry(Json& json, const CaseRecord& record) {
  if (!record.telemetry.is_null()) json["telemetry"] = record.telemetry;
  if (!record.telemetry_others.empty()) json["telemetry_others"] = record.telemetry_others;
  if (!record.telemetry_missing.empty()) json["telemetry_missing"] = record.telemetry_missing;
}

}  // namespace

Result out_of_memory(const OutOfMemory& exhausted) {
  return {Outcome::kSkipped, std::string("out of memory: ") + exhausted.what(),
          "free memory of the GPU or the machine, or use a larger one"};
}

std::vector<double> ArmRecord::step_s() const {
  std::vector<double> times_s;
  for (const Window& window : samples->windows)
    times_s.push_back(judged_s(window, clock) / static_cast<double>(samples->steps_per_window));
  return times_s;
}

Json to_json(const CaseRecord& record, const Job& job, const RunSettings& settings, const Json& context,
             const Json& gpus) {
  Json json = begin_record(job, settings);
  json["started_at"] = utc(record.started_at);
  write(json, record.result);
  if (!record.notes.empty()) json["notes"] = record.notes;
  if (!record.check_meaning.empty())
    json["check"] = {{"meaning", record.check_meaning}, {"tolerance", record.check_tolerance}};
  for (const ArmRecord& arm : record.arms) json["arms"].push_back(to_json(arm));
  if (record.sampling) write(json, *record.sampling);
  write_telemetry(json, record);
  if (!record.host_load.is_null()) json["host_load"] = record.host_load;
  if (!record.time_s.empty()) json["time_s"] = record.time_s;
  require_finite(json);
  json["context"] = context;
  for (std::size_t gpu = 0; gpu < std::min(record.gpus, gpus.size()); ++gpu)
    json["context"]["gpus"].push_back(gpus[gpu]);
  if (!record.versions.empty()) json["context"]["versions"] = record.versions;
  if (!record.scratch.is_null()) json["context"]["scratch"] = record.scratch;
  return json;
}

}  // namespace gpulift
