#pragma once
// Google Benchmark as the front: it names, selects, prints and writes; the paired engine measures. Every case and arm
// is one benchmark with manual time, every launch one repetition.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catalogue.hpp"
#include "job.hpp"

namespace gpulift {

/// One case that the filter and --quick selected.
struct SelectedCase {
  const TechniqueInfo* technique;
  const CaseInfo* info;
  std::vector<std::string> arms;  // those whose names matched; the engine measures all of them
};

/// The cases with at least one arm whose full benchmark name matches, by Google Benchmark's rules: an extended regular
/// expression searched in the name, "all" for everything, a leading '-' for all that do not match. Throws
/// std::invalid_argument for a broken expression.
std::vector<SelectedCase> select_cases(const std::vector<TechniqueInfo>& catalogue, const std::string& filter,
                                       bool quick);

/// The techniques that were not built and whose ids the filter matches: their cases and arms are not known.
std::vector<const TechniqueInfo*> unavailable_techniques(const std::vector<TechniqueInfo>& catalogue,
                                                         const std::string& filter);

/// Registers the selected arms and lets Google Benchmark list them.
void list_benchmarks(const std::vector<SelectedCase>& selected);

/// Registers the selected arms and lets Google Benchmark report what was measured: one repetition per launch.
void report_benchmarks(const std::vector<SelectedCase>& selected, const std::vector<nlohmann::ordered_json>& records,
                       const nlohmann::ordered_json& context);

}  // namespace gpulift
