#include "benchmark_front.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <regex>
#include <stdexcept>
#include <string_view>

#include "core/harness/stop_rule.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

std::string arm_name(const SelectedCase& selected, const std::string& arm) {
  return full_case_id(selected.technique->id, selected.info->id) + "/" + arm;
}

/// Google Benchmark appends this to every name that it prints: to a filter that was copied from there it is the end.
std::string without_decoration(std::string text) {
  constexpr std::string_view kDecoration = "/iterations:1/manual_time";
  for (std::size_t at = text.find(kDecoration); at != std::string::npos; at = text.find(kDecoration, at)) {
    text.replace(at, kDecoration.size(), "$");
  }
  return text;
}

class Filter {
 public:
  explicit Filter(const std::string& asked) {
    const std::string text = asked.empty() || asked == "all" ? "." : without_decoration(asked);
    inverted_ = text.front() == '-';
    try {
      expression_ = std::regex(inverted_ ? text.substr(1) : text, std::regex::extended | std::regex::nosubs);
    } catch (const std::regex_error& error) {
      throw std::invalid_argument("the filter '" + asked + "' is no regular expression: " + error.what());
    }
  }
  bool matches(const std::string& name) const { return finds(name) != inverted_; }

  /// The arms of the case that match, in declared order.
  std::vector<std::string> arms_of(const TechniqueInfo& technique, const CaseInfo& info) const {
    const std::string case_name = full_case_id(technique.id, info.id);
    const bool whole = finds(technique.id) || finds(case_name);
    std::vector<std::string> arms;
    for (const std::string& arm : technique.arms) {
      if ((whole || finds(case_name + "/" + arm)) != inverted_) arms.push_back(arm);
    }
    return arms;
  }

 private:
  bool finds(const std::string& name) const { return std::regex_search(name, expression_); }

  bool inverted_ = false;
  std::regex expression_;
};

/// What one arm measured in one launch, as Google Benchmark shows it.
struct Repetition {
  double step_s = 0;  // median window by the judging clock
  std::string error;  // why there is none
  Json cost;
  std::map<std::string, double> counters;
};

std::vector<double> step_times(const Json& arm) {
  std::vector<double> times;
  for (const double window_s : arm.at("windows").at(arm.at("clock") == "host" ? "host_s" : "device_s")) {
    times.push_back(window_s / arm.at("steps_per_window").get<double>());
  }
  return times;
}

Repetition repetition_of(const Json& record, const std::string& name) {
  Repetition repetition;
  const std::string outcome = record.at("outcome");
  if (outcome != "ok") {
    repetition.error = outcome + ": " + record.value("reason", "");
    return repetition;
  }
  const Json& baseline = record.at("arms").front();
  repetition.error = "not measured";
  for (const Json& arm : record.at("arms")) {
    if (arm.at("name") != name) continue;
    if (arm.at("outcome") != "ok") {
      repetition.error = arm.at("outcome").get<std::string>() + ": " + arm.value("reason", "");
      return repetition;
    }
    repetition.error.clear();
    repetition.step_s = median(step_times(arm));
    repetition.cost = arm.at("cost");
    for (const char* key : {"peak_device_bytes", "peak_host_bytes"}) {
      if (arm.contains(key)) repetition.counters[key] = arm.at(key);
    }
    if (!record.at("ceiling").get<bool>() && baseline.at("outcome") == "ok") {
      repetition.counters["speedup"] = median(step_times(baseline)) / repetition.step_s;
    }
    if (record.at("stop").contains("reached_half_width")) {
      repetition.counters["half_width"] = record.at("stop").at("reached_half_width");
    }
  }
  return repetition;
}

void show(benchmark::State& state, const Repetition& repetition) {
  if (!repetition.error.empty()) {
    state.SkipWithError(repetition.error.c_str());
    return;
  }
  while (state.KeepRunning()) state.SetIterationTime(repetition.step_s);
  const auto rate = [&](const char* key) { return repetition.cost.at(key).get<double>() / repetition.step_s; };
  if (repetition.cost.at("bytes") > 0) state.counters["bytes_per_second"] = rate("bytes");
  if (repetition.cost.at("items") > 0) state.counters["items_per_second"] = rate("items");
  if (repetition.cost.at("flops") > 0) state.counters["flops_per_second"] = rate("flops");
  for (const auto& [name, value] : repetition.counters) state.counters[name] = value;
}

void register_arm(const std::string& name, std::vector<Repetition> repetitions) {
  auto* registered = benchmark::RegisterBenchmark(
      name.c_str(), [repetitions = std::move(repetitions), next = std::size_t{0}](benchmark::State& state) mutable {
        if (next >= repetitions.size()) {
          state.SkipWithError("not measured in this launch");
          return;
        }
        show(state, repetitions[next]);
        ++next;
      });
  registered->Iterations(1)->UseManualTime();
}

}  // namespace

std::vector<std::string> measured_arms(const SelectedCase& selected) {
  const std::vector<std::string>& all = selected.technique->arms;
  std::vector<std::string> measured;
  for (const std::string& arm : all) {
    const bool matched = std::find(selected.arms.begin(), selected.arms.end(), arm) != selected.arms.end();
    if (matched || arm == all.front()) measured.push_back(arm);
  }
  if (measured.size() == all.size()) measured.clear();
  return measured;
}

std::vector<SelectedCase> select_cases(const std::vector<TechniqueInfo>& catalogue, const std::string& filter,
                                       bool quick) {
  const Filter wanted(filter);
  std::vector<SelectedCase> selected;
  for (const TechniqueInfo& technique : catalogue) {
    for (const CaseInfo& info : technique.cases) {
      if (quick && !info.quick) continue;
      SelectedCase candidate{&technique, &info, wanted.arms_of(technique, info)};
      if (!candidate.arms.empty()) selected.push_back(std::move(candidate));
    }
  }
  return selected;
}

std::vector<const TechniqueInfo*> unavailable_techniques(const std::vector<TechniqueInfo>& catalogue,
                                                         const std::string& filter) {
  const Filter wanted(filter);
  std::vector<const TechniqueInfo*> found;
  for (const TechniqueInfo& technique : catalogue) {
    if (!technique.unavailable.empty() && wanted.matches(technique.id)) found.push_back(&technique);
  }
  return found;
}

void list_benchmarks(const std::vector<SelectedCase>& selected) {
  for (const SelectedCase& one : selected) {
    for (const std::string& arm : one.arms) register_arm(arm_name(one, arm), {});
  }
  benchmark::RunSpecifiedBenchmarks();
}

void report_benchmarks(const std::vector<SelectedCase>& selected, const std::vector<Json>& records,
                       const Json& context) {
  for (const SelectedCase& one : selected) {
    for (const std::string& arm : one.arms) {
      std::vector<Repetition> repetitions;
      for (const Json& record : records) {
        const bool same = record.at("technique") == one.technique->id && record.at("case_id") == one.info->id;
        if (same) repetitions.push_back(repetition_of(record, arm));
      }
      register_arm(arm_name(one, arm), std::move(repetitions));
    }
  }
  if (context.contains("gpu")) benchmark::AddCustomContext("gpu", context.at("gpu").at("name"));
  benchmark::AddCustomContext("gpulift_commit", context.at("build").at("commit"));
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace gpulift
