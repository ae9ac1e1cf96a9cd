#pragma once
// What the program itself needs of a record that is kept, to go on with a run and to show it: read once, where the
// record comes in from a launch or from the folder of records.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/harness/json.hpp"
#include "core/harness/technique.hpp"

namespace gpulift {

struct ArmSummary {
  std::string name;
  std::string unmeasured;  // outcome and reason; empty: it was measured, and has what follows
  double step_s = 0;       // of its median window, by the clock that judges it
  Cost cost = {};
  std::map<std::string, double> peak_bytes = {};  // by the record's key
  nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
};

struct RecordSummary {
  std::string case_name;  // "transfer/pinned_copy/bytes:4096"
  std::string arm = {};   // of a duet
  int launch = 0;
  std::string outcome = {};
  std::string failure = {};     // outcome and reason of all but "ok"
  std::string failed_arm = {};  // of one that is "ok": outcome and reason of an arm that is wrong, not just skipped
  bool ceiling = false;
  std::vector<ArmSummary> arms = {};  // the baseline first
  std::optional<double> half_width = {};
  nlohmann::ordered_json notes = nlohmann::ordered_json::object();
  nlohmann::ordered_json source = {};  // hashes of the technique's files

  /// Null where the record does not have it.
  const ArmSummary* find(const std::string& arm_name) const;
};

RecordSummary summary_of(const nlohmann::ordered_json& record);

}  // namespace gpulift
