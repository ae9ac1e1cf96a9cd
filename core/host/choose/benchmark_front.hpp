#pragma once
// Google Benchmark as the front: it names, prints and writes; the paired engine measures. Every case and arm is one
// benchmark with manual time, every launch one repetition. What is selected is selected here, by its rules.

#include <string>
#include <vector>

#include "core/harness/json.hpp"
#include "core/host/record/catalogue.hpp"
#include "core/host/record/record_summary.hpp"

namespace gpulift {

/// One case that the filter and --quick selected.
struct SelectedCase {
  const TechniqueInfo* technique;
  const CaseInfo* info;
  std::vector<std::string> arms;  // those that matched; measured_arms() says what that means for the engine
};

/// What to measure of the case: the baseline and the arms that matched, as declared.
std::vector<std::string> measured_arms(const SelectedCase& selected);

/// The cases with at least one arm that matches, by Google Benchmark's rules: an extended regular expression searched
/// in "technique/case/arm", "all" for everything, a leading '-' for all that do not match. One that matches the
/// technique or the case matches all arms. Throws std::invalid_argument for a broken expression.
std::vector<SelectedCase> select_cases(const std::vector<TechniqueInfo>& catalogue, const std::string& filter,
                                       bool quick);

/// Whether the filter selects an arm of it or, where its cases are not known, the technique.
bool is_selected(const TechniqueInfo& technique, const std::string& filter);

/// The techniques that were not built and whose ids the filter matches: their cases and arms are not known.
std::vector<const TechniqueInfo*> unavailable_techniques(const std::vector<TechniqueInfo>& catalogue,
                                                         const std::string& filter);

/// Registers the selected arms and lets Google Benchmark list them.
void list_benchmarks(const std::vector<SelectedCase>& selected);

/// Registers the selected arms and lets Google Benchmark report what was measured: one repetition per launch. An arm
/// that a record lacks is shown as not measured.
void report_benchmarks(const std::vector<SelectedCase>& selected, const std::vector<RecordSummary>& records,
                       const nlohmann::ordered_json& context);

}  // namespace gpulift
