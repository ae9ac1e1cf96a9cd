#include "benchmark_front.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string_view>

#include "core/harness/pattern.hpp"

namespace gpulift {
namespace {

std::string name_of(const SelectedCase& selected) { return full_case_id(selected.technique->id, selected.info->id); }

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
      expression_ = Pattern(inverted_ ? text.substr(1) : text, Pattern::Grammar::kExtended);
    } catch (const std::invalid_argument& error) {
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
  bool finds(const std::string& name) const { return expression_.is_part_of(name); }

  bool inverted_ = false;
  Pattern expression_{"."};
};

/// Why one launch has no time of the arm; empty where it has.
std::string unmeasured(const RecordSummary& record, const std::string& arm_name) {
  if (!record.failure.empty()) return record.failure;
  const ArmSummary* arm = record.find(arm_name);
  return arm == nullptr ? "not measured" : arm->unmeasured;
}

void show(benchmark::State& state, const RecordSummary& record, const std::string& arm_name) {
  if (const std::string reason = unmeasured(record, arm_name); !reason.empty()) {
    // Its iteration counts, too: the library aborts where repetitions have different numbers of them.
    while (state.KeepRunning()) state.SetIterationTime(0);
    state.SkipWithError(reason.c_str());
    return;
  }
  const ArmSummary& arm = *record.find(arm_name);
  while (state.KeepRunning()) state.SetIterationTime(arm.step_s);
  if (arm.cost.bytes > 0) state.counters["bytes_per_second"] = arm.cost.bytes / arm.step_s;
  if (arm.cost.items > 0) state.counters["items_per_second"] = arm.cost.items / arm.step_s;
  if (arm.cost.flops > 0) state.counters["flops_per_second"] = arm.cost.flops / arm.step_s;
  for (const auto& [key, bytes] : arm.peak_bytes) state.counters[key] = bytes;
  const ArmSummary& baseline = record.arms.front();
  if (!record.ceiling && baseline.unmeasured.empty()) state.counters["speedup"] = baseline.step_s / arm.step_s;
  if (record.half_width) state.counters["half_width"] = *record.half_width;
}

/// `launches` are those of the arm's case.
void register_arm(const SelectedCase& selected, const std::string& arm, std::vector<const RecordSummary*> launches) {
  auto* registered = benchmark::RegisterBenchmark(
      (name_of(selected) + "/" + arm).c_str(),
      [arm, launches = std::move(launches), next = std::size_t{0}](benchmark::State& state) mutable {
        if (next >= launches.size()) {
          state.SkipWithError("not measured in this launch");
          return;
        }
        show(state, *launches[next], arm);
        ++next;
      });
  registered->Iterations(1)->UseManualTime();
}

constexpr const char* kAllRegistered = ".";  // a filter for Google Benchmark

}  // namespace

std::vector<std::string> measured_arms(const SelectedCase& selected) {
  const std::vector<std::string>& all = selected.technique->arms;
  std::vector<std::string> measured;
  for (const std::string& arm : all) {
    const bool matched = std::find(selected.arms.begin(), selected.arms.end(), arm) != selected.arms.end();
    if (matched || arm == all.front()) measured.push_back(arm);
  }
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

bool is_selected(const TechniqueInfo& technique, const std::string& filter) {
  const Filter wanted(filter);
  if (!technique.unavailable.empty()) return wanted.matches(technique.id);
  return std::any_of(technique.cases.begin(), technique.cases.end(),
                     [&](const CaseInfo& info) { return !wanted.arms_of(technique, info).empty(); });
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
    for (const std::string& arm : one.arms) register_arm(one, arm, {});
  }
  benchmark::RunSpecifiedBenchmarks(kAllRegistered);
}

void report_benchmarks(const std::vector<SelectedCase>& selected, const std::vector<RecordSummary>& records,
                       const nlohmann::ordered_json& context) {
  std::map<std::string, std::vector<const RecordSummary*>> launches;
  for (const RecordSummary& record : records) launches[record.case_name].push_back(&record);
  for (const SelectedCase& one : selected) {
    for (const std::string& arm : one.arms) register_arm(one, arm, launches[name_of(one)]);
  }
  if (context.contains("gpu")) benchmark::AddCustomContext("gpu", context.at("gpu").at("name"));
  benchmark::AddCustomContext("gpulift_commit", context.at("build").at("commit"));
  benchmark::RunSpecifiedBenchmarks(kAllRegistered);
}

}  // namespace gpulift
