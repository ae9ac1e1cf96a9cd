#include "record_summary.hpp"

#include <algorithm>

#include "catalogue.hpp"
#include "core/harness/stop_rule.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

/// Of a record or of an arm of one, with its remedy; empty for "ok".
std::string failure_of(const Json& json) {
  const std::string outcome = json.at("outcome");
  const std::string remedy = json.value("remedy", "");
  return outcome == "ok" ? "" : outcome + ": " + json.value("reason", "") + (remedy.empty() ? "" : "; " + remedy);
}

double median_step_s(const Json& arm) {
  const char* clock = arm.at("clock") == "host" ? "host_s" : "device_s";
  const auto windows_s = arm.at("windows").at(clock).get<std::vector<double>>();
  return median(windows_s) / arm.at("steps_per_window").get<double>();
}

/// The arms of a case that failed may have no window.
ArmSummary arm_summary_of(const Json& json, const std::string& failure_of_case) {
  const std::string own = failure_of(json);
  ArmSummary arm{.name = json.at("name"), .unmeasured = own.empty() ? failure_of_case : own};
  if (arm.unmeasured.empty() && !json.contains("windows")) arm.unmeasured = "profiled, not timed";
  if (!arm.unmeasured.empty()) return arm;
  const Json& cost = json.at("cost");
  arm.step_s = median_step_s(json);
  arm.cost = {.bytes = cost.at("bytes"), .flops = cost.at("flops"), .items = cost.at("items")};
  arm.metrics = json.value("metrics", Json::object());
  for (const char* key : {"peak_device_bytes", "peak_host_bytes"}) {
    if (json.contains(key)) arm.peak_bytes[key] = json.at(key);
  }
  return arm;
}

}  // namespace

const ArmSummary* RecordSummary::find(const std::string& arm_name) const {
  const auto found =
      std::find_if(arms.begin(), arms.end(), [&](const ArmSummary& one) { return one.name == arm_name; });
  return found == arms.end() ? nullptr : &*found;
}

RecordSummary summary_of(const Json& record) {
  RecordSummary summary{.case_name = full_case_id(record.at("technique"), record.at("case_id")),
                        .arm = record.value("arm", ""),
                        .launch = record.at("launch"),
                        .outcome = record.at("outcome"),
                        .failure = failure_of(record),
                        .ceiling = record.value("ceiling", false),
                        .notes = record.value("notes", Json::object()),
                        .source = record.value("source", Json())};
  for (const Json& arm : record.value("arms", Json::array())) {
    summary.arms.push_back(arm_summary_of(arm, summary.failure));
    const bool is_wrong = arm.at("outcome") == "failed" || arm.at("outcome") == "error";
    if (is_wrong && summary.failure.empty()) summary.failed_arm = failure_of(arm);
  }
  if (const Json& stop = record.value("stop", Json::object()); stop.contains("reached_half_width"))
    summary.half_width = stop.at("reached_half_width");
  return summary;
}

}  // namespace gpulift
