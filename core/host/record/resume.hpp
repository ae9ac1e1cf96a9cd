#pragma once
// Going on with a folder of records: what may be put beside it, and which of its records count.

#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/harness/json.hpp"
#include "job.hpp"
#include "record_summary.hpp"

namespace gpulift {

/// The folder's records come from another card, driver or build, so that nothing measured here may be put beside them.
class NotComparable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The folder's records were measured with other settings.
class OtherSettings : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws NotComparable or OtherSettings unless all records can be gone on with in this context ("options" included).
/// The text names the first fact that differs. A fact that one side does not know is not compared, save for the card.
void require_same_run(const std::vector<nlohmann::ordered_json>& records, const nlohmann::ordered_json& context);

/// "transfer/pinned_copy/bytes:4096/pinned#2": technique, case, arm of a duet, launch.
std::string record_key(const RecordSummary& record);

/// Of each arm of the job, by its name: the metrics of the first of the launches before it in which the arm was
/// measured from the same source. A launch that is measured again hears of none but those before it.
nlohmann::ordered_json earlier_metrics(const std::vector<RecordSummary>& records, const Job& job);

/// Records of which the last of each technique, case, arm and launch counts: an error may have been measured again.
class LatestRecords {
 public:
  void add(RecordSummary record);
  const std::vector<RecordSummary>& all() const { return records_; }

 private:
  std::vector<RecordSummary> records_;
  std::map<std::string, std::size_t> places_;
};

}  // namespace gpulift
