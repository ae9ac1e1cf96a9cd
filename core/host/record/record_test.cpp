#include "record.hpp"

#include <gmock/gmock.h>

#include <limits>

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

Job job_of_record() {
  Job job;
  job.technique = "input/copy";
  job.case_id = "bytes:4";
  job.point = {{"bytes", 4}};
  job.regime = "burst";
  return job;
}

ArmRecord measured(const std::string& name) {
  ArmRecord arm{.name = name, .baseline = true, .cost = Cost{.items = 2, .item = "copy"}};
  arm.samples =
      ArmSamples{.steps_per_window = 2, .lead_in_steps = 1, .windows = {Window{.host_s = 1}, Window{.host_s = 3}}};
  return arm;
}

Json line_of(const CaseRecord& record, const Json& gpus = Json::array()) {
  return to_json(record, job_of_record(), RunSettings{}, {{"host", {{"cpu", "x"}}}}, gpus);
}

TEST(ArmRecord, TimesOfAStepAreByTheClockThatJudges) {
  ArmRecord arm = measured("a");
  EXPECT_THAT(arm.step_s(), testing::ElementsAre(0.5, 1.5));
  arm.samples->windows[0].device_s = arm.samples->windows[1].device_s = 1;
  arm.clock = Clock::kUnheld;
  EXPECT_THAT(arm.step_s(), testing::ElementsAre(0.5, 0.5));
}

TEST(CaseRecord, HasWhatWasMeasuredAndNothingElse) {
  CaseRecord record{.result = {}, .check_meaning = "exact bytes"};
  record.arms.push_back(measured("a"));
  record.sampling = CaseRecord::Sampling{.blocks = {{0, 0}}, .planned_blocks = 4};
  const Json line = line_of(record);
  EXPECT_EQ(line.at("outcome"), "ok");
  EXPECT_EQ(line.at("stop").at("planned_blocks"), 4);
  const Json& arm = line.at("arms")[0];
  EXPECT_EQ(arm.at("windows").at("host_s").dump(), "[1.0,3.0]");
  EXPECT_EQ(arm.at("clock"), "host");
  for (const char* key : {"ranks", "environment", "checked", "precondition", "check_error", "metrics"})
    EXPECT_FALSE(arm.contains(key)) << key;
  EXPECT_FALSE(arm.at("windows").contains("cpu_s"));
  for (const char* key : {"notes", "telemetry_others", "host_load"}) EXPECT_FALSE(line.contains(key)) << key;
  EXPECT_FALSE(line.at("order").contains("visits"));
  EXPECT_FALSE(line.at("stop").contains("dropped_visits"));
  for (const char* key : {"gpus", "versions", "scratch"}) EXPECT_FALSE(line.at("context").contains(key)) << key;
}

TEST(CaseRecord, SaysWhichArmsWereVisitedAndWhichVisitsWereReplaced) {
  CaseRecord record;
  record.sampling = CaseRecord::Sampling{.blocks = {{1, 0, 0, 1}}, .visits = {1, 0, 0, 1}};
  EXPECT_EQ(line_of(record).at("order").at("visits"), Json({1, 0, 0, 1}));
  record.sampling->visits.clear();
  record.sampling->dropped_visits = 4;
  EXPECT_EQ(line_of(record).at("stop").at("dropped_visits"), 4);
}

TEST(CaseRecord, SaysWhenItsCaseBegan) {
  CaseRecord record;
  EXPECT_GT(record.started_at, 0);
  record.started_at = 1;
  EXPECT_EQ(line_of(record).at("started_at"), "1970-01-01T00:00:01Z") << "not when the line was written";
}

TEST(CaseRecord, SaysWhatAnArmHadOfItsOwn) {
  ArmRecord arm = measured("a");
  arm.ranks = 2;
  arm.environment = {{"NCCL_ALGO", "Ring"}};
  arm.checked = false;
  arm.precondition = {"resident_share", 0.01, 0.002};
  for (Window& window : arm.samples->windows) window.cpu_s = 0.25;
  CaseRecord record{.result = {}, .versions = {{"nccl", "2.28.9"}}};
  record.scratch = {{"filesystem", "ext4"}};
  record.gpus = 2;
  record.arms.push_back(arm);
  const Json line = line_of(record, {{{"card", "1a"}}, {{"card", "2b"}}, {{"card", "3c"}}});
  const Json& written = line.at("arms")[0];
  EXPECT_EQ(written.at("ranks"), 2);
  EXPECT_EQ(written.at("environment").at("NCCL_ALGO"), "Ring");
  EXPECT_EQ(written.at("checked"), false);
  EXPECT_EQ(written.at("precondition").dump(), R"({"name":"resident_share","most":0.01,"worst":0.002})");
  EXPECT_EQ(written.at("windows").at("cpu_s").dump(), "[0.25,0.25]");
  ASSERT_EQ(line.at("context").at("gpus").size(), 2U) << "not all that the run has";
  EXPECT_EQ(line.at("context").at("gpus")[1].at("card"), "2b");
  EXPECT_EQ(line.at("context").at("versions").at("nccl"), "2.28.9");
  EXPECT_EQ(line.at("context").at("scratch").at("filesystem"), "ext4");
}

TEST(CaseRecord, TimesAreWrittenToTheNanosecondAndClocksInWholeHertz) {
  CaseRecord record{.result = {}};
  record.arms.push_back(measured("a"));
  auto& windows = record.arms[0].samples->windows;
  windows[0] = windows[1] =
      Window{.start_s = 1.00000000049, .host_s = 0.0123456789123, .enqueue_s = 4e-10, .sm_clock_hz = 1980000000.4};
  const Json written = line_of(record).at("arms")[0].at("windows");
  EXPECT_EQ(written.at("start_s")[0].dump(), "1.0");
  EXPECT_EQ(written.at("host_s")[0].dump(), "0.012345679");
  EXPECT_EQ(written.at("enqueue_s")[0].dump(), "0.0");
  EXPECT_EQ(written.at("sm_clock_hz")[0].dump(), "1980000000.0");
}

TEST(CaseRecord, AClockThatOneWindowLacksIsLeftOut) {
  CaseRecord record{.result = {}};
  record.arms.push_back(measured("a"));
  record.arms[0].samples->windows[0].cpu_s = 0.5;
  EXPECT_FALSE(line_of(record).at("arms")[0].at("windows").contains("cpu_s"));
}

TEST(CaseRecord, ANumberThatIsNotFiniteIsNamed) {
  CaseRecord record{.result = {}};
  record.arms.push_back(measured("a"));
  record.arms[0].cost->items = std::numeric_limits<double>::infinity();
  EXPECT_THAT([&] { line_of(record); },
              testing::ThrowsMessage<std::domain_error>(testing::HasSubstr("arms.0.cost.items")));
}

TEST(CaseRecord, ASkipHasItsReasonAndRemedyOnOneLine) {
  const Json line = line_of({.result = {Outcome::kSkipped, "no\nGPU", "buy one"}});
  EXPECT_EQ(line.at("outcome"), "skipped");
  EXPECT_EQ(line.at("reason"), "no GPU");
  EXPECT_EQ(line.at("remedy"), "buy one");
  EXPECT_FALSE(line.contains("arms"));
}

}  // namespace
}  // namespace gpulift
