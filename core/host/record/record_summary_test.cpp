#include "record_summary.hpp"

#include <gmock/gmock.h>

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

Json record() {
  return Json::parse(R"({"technique": "transfer/copy", "case_id": "bytes:4", "launch": 2, "outcome": "ok",
    "ceiling": false, "source": {"copy.cpp": "1a"}, "stop": {"reached_half_width": 0.002}, "notes": {"algorithm": "7"}, "arms": [
    {"name": "pageable", "outcome": "ok", "clock": "host", "steps_per_window": 2, "metrics": {"loss": 2.5}, "peak_host_bytes": 9,
     "windows": {"host_s": [0.5, 0.1, 0.2], "device_s": [9, 9, 9]}, "cost": {"bytes": 4, "flops": 0, "items": 1}},
    {"name": "pinned", "outcome": "ok", "clock": "device", "steps_per_window": 1,
     "windows": {"host_s": [9, 9], "device_s": [0.1, 0.3]}, "cost": {"bytes": 4, "flops": 0, "items": 0}},
    {"name": "afresh", "outcome": "skipped", "reason": "no memory"}]})");
}

TEST(SummaryOf, NamesCaseAndLaunchAndWhatWasNoted) {
  const RecordSummary summary = summary_of(record());
  EXPECT_EQ(summary.case_name, "transfer/copy/bytes:4");
  EXPECT_EQ(summary.launch, 2);
  EXPECT_EQ(summary.outcome, "ok");
  EXPECT_EQ(summary.failure, "");
  EXPECT_EQ(summary.half_width, 0.002);
  EXPECT_EQ(summary.notes.dump(), R"({"algorithm":"7"})");
  EXPECT_EQ(summary.source.dump(), R"({"copy.cpp":"1a"})");
  EXPECT_EQ(summary.find("pageable")->metrics.dump(), R"({"loss":2.5})");
  EXPECT_EQ(summary.find("pinned")->metrics.dump(), "{}") << "it was measured, and said nothing of itself";
}

TEST(SummaryOf, NamesAnArmThatIsWrongButNoneThatIsSkipped) {
  Json wrong = record();
  EXPECT_EQ(summary_of(wrong).failed_arm, "");
  wrong["arms"][2]["outcome"] = "failed";
  EXPECT_EQ(summary_of(wrong).failed_arm, "failed: no memory");
  EXPECT_EQ(summary_of(wrong).failure, "") << "the others were measured";
}

TEST(SummaryOf, TakesTheMedianStepByTheClockThatJudgesTheArm) {
  const RecordSummary summary = summary_of(record());
  EXPECT_DOUBLE_EQ(summary.find("pageable")->step_s, 0.1);
  EXPECT_DOUBLE_EQ(summary.find("pinned")->step_s, 0.2);
  EXPECT_EQ(summary.find("pageable")->cost.bytes, 4);
  EXPECT_EQ(summary.find("pageable")->peak_bytes, (std::map<std::string, double>{{"peak_host_bytes", 9}}));
}

TEST(SummaryOf, SaysWhyAnArmWasNotMeasured) {
  EXPECT_EQ(summary_of(record()).find("afresh")->unmeasured, "skipped: no memory");
  EXPECT_EQ(summary_of(record()).find("registered"), nullptr);
}

TEST(SummaryOf, OfACaseThatFailedHasNoTimes) {
  Json failed = record();
  failed["outcome"] = "failed";
  failed["reason"] = "no block is left";
  failed["arms"][0]["windows"]["host_s"] = Json::array();
  const RecordSummary summary = summary_of(failed);
  EXPECT_EQ(summary.find("pageable")->unmeasured, "failed: no block is left");
  EXPECT_EQ(summary.find("afresh")->unmeasured, "skipped: no memory");
}

TEST(SummaryOf, OfACaseThatNeverRanHasItsReason) {
  const RecordSummary summary = summary_of(
      {{"technique", "transfer/copy"}, {"case_id", ""}, {"launch", 0}, {"outcome", "error"}, {"reason", "it hung"}});
  EXPECT_EQ(summary.case_name, "transfer/copy");
  EXPECT_EQ(summary.failure, "error: it hung");
  EXPECT_THAT(summary.arms, testing::IsEmpty());
  const RecordSummary helped = summary_of({{"technique", "transfer/copy"},
                                           {"case_id", ""},
                                           {"launch", 0},
                                           {"outcome", "skipped"},
                                           {"reason", "no disk"},
                                           {"remedy", "name one"}});
  EXPECT_EQ(helped.failure, "skipped: no disk; name one");
}

}  // namespace
}  // namespace gpulift
