#include "resume.hpp"

#include <gmock/gmock.h>

#include "core/harness/record_file.hpp"
#include "job.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Json context() {
  return {{"gpu", {{"name", "NVIDIA H200"}, {"card", "1a2b3c4d"}}},
          {"driver", "580.1"},
          {"host", {{"cpu", "Xeon"}, {"cores", 16}}},
          {"build", {{"type", "Release"}, {"flags", "-O3"}, {"commit", "abc1234"}, {"dirty", false}}},
          {"options", options_of(RunSettings{})}};
}

Json record(const Json& of_context, int launch = 0, const std::string& outcome = "ok") {
  return {{"method", kMethodVersion}, {"technique", "transfer/copy"}, {"case_id", "bytes:4"},
          {"launch", launch},         {"outcome", outcome},           {"context", of_context}};
}

TEST(RequireSameRun, TakesAnEmptyFolderAndTheSameRun) {
  EXPECT_NO_THROW(require_same_run({}, context()));
  EXPECT_NO_THROW(require_same_run({record(context()), record(context(), 1)}, context()));
}

struct Change {
  const char* key;
  Json value;
  const char* said;
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.key; }

class OtherOrigin : public testing::TestWithParam<Change> {};

TEST_P(OtherOrigin, IsNotComparableAndNamed) {
  Json other = context();
  other[Json::json_pointer(GetParam().key)] = GetParam().value;
  // The first record is in order: every one is looked at.
  EXPECT_THAT([&] { require_same_run({record(context()), record(other, 1)}, context()); },
              ThrowsMessage<NotComparable>(AllOf(HasSubstr(GetParam().said), HasSubstr("another folder"))));
}

INSTANTIATE_TEST_SUITE_P(Facts, OtherOrigin,
                         testing::Values(Change{"/gpu/card", "99999999", "card 99999999, here it is 1a2b3c4d"},
                                         Change{"/driver", "590.2", "driver 590.2, here it is 580.1"},
                                         Change{"/host/cpu", "EPYC", "CPU EPYC, here it is Xeon"},
                                         Change{"/build/type", "Debug", "build type Debug, here it is Release"},
                                         Change{"/build/flags", "-O1", "compiler flags -O1, here it is -O3"},
                                         Change{"/build/commit", "fff", "commit fff, here it is abc1234"},
                                         Change{"/build/dirty", true, "uncommitted changes true, here it is false"}));

struct Variable {
  const char* there;
  const char* here;
  const char* said;
};

Json in_environment(const char* value) {
  Json made = context();
  if (*value != '\0') made["environment"] = {{"OMP_NUM_THREADS", value}};
  return made;
}

class OtherEnvironment : public testing::TestWithParam<Variable> {};

TEST_P(OtherEnvironment, IsNotComparableWhereTheRecordTellsAllOfIt) {
  Json old = record(in_environment(GetParam().there));
  EXPECT_NO_THROW(require_same_run({old}, in_environment(GetParam().here)));
  old["schema"] = kSchemaVersion;
  EXPECT_THAT([&] { require_same_run({old}, in_environment(GetParam().here)); },
              ThrowsMessage<NotComparable>(HasSubstr(GetParam().said)));
  EXPECT_NO_THROW(require_same_run({old}, in_environment(GetParam().there)));
}

INSTANTIATE_TEST_SUITE_P(Variables, OtherEnvironment,
                         testing::Values(Variable{"4", "8", "OMP_NUM_THREADS 4, here it is 8"},
                                         Variable{"", "8", "OMP_NUM_THREADS not set, here it is 8"},
                                         Variable{"4", "", "OMP_NUM_THREADS 4, here it is not set"}));

class OtherOption : public testing::TestWithParam<Change> {};

TEST_P(OtherOption, IsRefusedAndNamed) {
  Json other = context();
  other[Json::json_pointer(GetParam().key)] = GetParam().value;
  EXPECT_THAT([&] { require_same_run({record(other)}, context()); },
              ThrowsMessage<OtherSettings>(AllOf(HasSubstr(GetParam().said), HasSubstr("another folder"))));
}

INSTANTIATE_TEST_SUITE_P(Settings, OtherOption,
                         testing::Values(Change{"/options/quick", true, "--quick true, here it is false"},
                                         Change{"/options/arm_time_s", 0.5, "--arm-time 0.5, here it is 0.3"},
                                         Change{"/options/precision", 0.01, "--precision 0.01, here it is 0.0025"},
                                         Change{"/options/seed", 9, "--seed 9, here it is 1"}));

TEST(RequireSameRun, MoreLaunchesGoOnWithIt) {
  Json more = context();
  more["options"]["launches"] = 7;
  EXPECT_NO_THROW(require_same_run({record(context())}, more));
}

TEST(RequireSameRun, SlowedAndPlainLaunchesDoNotMix) {
  Json slowed = context();
  slowed["options"]["plant"] = 0.5;
  EXPECT_THAT([&] { require_same_run({record(slowed)}, context()); },
              ThrowsMessage<OtherSettings>(HasSubstr("--plant 0.5, here it is 0")));
  EXPECT_THAT([&] { require_same_run({record(context())}, slowed); },
              ThrowsMessage<OtherSettings>(HasSubstr("--plant 0, here it is 0.5")));
  EXPECT_NO_THROW(require_same_run({record(slowed)}, slowed));
}

TEST(RequireSameRun, StepsForAProfilerAreNoMeasurement) {
  Json profiled = context();
  profiled["options"]["profile"] = true;
  EXPECT_THAT([&] { require_same_run({record(profiled)}, context()); },
              ThrowsMessage<OtherSettings>(HasSubstr("--profile true, here it is false")));
  EXPECT_THAT([&] { require_same_run({record(context())}, profiled); },
              ThrowsMessage<OtherSettings>(HasSubstr("--profile false, here it is true")));
  EXPECT_NO_THROW(require_same_run({record(profiled)}, profiled));
}

TEST(RequireSameRun, ACardAndNoCardAreNotTheSame) {
  Json without = context();
  without.erase("gpu");
  without.erase("driver");
  EXPECT_THAT([&] { require_same_run({record(context())}, without); },
              ThrowsMessage<NotComparable>(HasSubstr("card 1a2b3c4d, here it is none")));
  EXPECT_NO_THROW(require_same_run({record(without)}, without));
}

TEST(RequireSameRun, WhatOneSideDoesNotKnowIsNotCompared) {
  Json sparse = context();
  sparse.erase("driver");
  sparse["options"].erase("seed");
  EXPECT_NO_THROW(require_same_run({record(sparse)}, context()));
  EXPECT_NO_THROW(require_same_run({record(context())}, sparse));
}

TEST(RequireSameRun, AnotherWayOfMeasuringIsNotComparable) {
  Json older = record(context());
  older["method"] = "0";
  EXPECT_THAT([&] { require_same_run({older}, context()); },
              ThrowsMessage<NotComparable>(HasSubstr("method 0, here it is")));
}

/// Of a launch in which one arm was measured, and the other or neither.
RecordSummary launch_of(int launch, const char* arm, double loss, const char* source = "1a") {
  RecordSummary summary;
  summary.case_name = "transfer/copy/bytes:4";
  summary.launch = launch;
  summary.outcome = "ok";
  summary.source = {{"copy.cpp", source}};
  summary.arms = {{.name = arm, .unmeasured = "", .metrics = {{"loss", loss}}},
                  {.name = "skipped", .unmeasured = "skipped: no memory"}};
  return summary;
}

Job job_of(int launch) {
  Job job;
  job.technique = "transfer/copy";
  job.case_id = "bytes:4";
  job.launch = launch;
  job.about = {{"source", {{"copy.cpp", "1a"}}}};
  return job;
}

TEST(EarlierMetrics, AreThoseOfTheFirstLaunchInWhichTheArmWasMeasured) {
  const std::vector<RecordSummary> records{launch_of(1, "pinned", 3), launch_of(0, "pageable", 1),
                                           launch_of(2, "pageable", 2)};
  EXPECT_EQ(earlier_metrics(records, job_of(3)), (Json{{"pageable", {{"loss", 1.0}}}, {"pinned", {{"loss", 3.0}}}}))
      << "of an arm that was skipped there is nothing";
}

TEST(EarlierMetrics, ALaunchThatIsMeasuredAgainHearsOfNoneBehindIt) {
  const std::vector<RecordSummary> records{launch_of(0, "pinned", 1), launch_of(1, "pinned", 2)};
  EXPECT_EQ(earlier_metrics(records, job_of(0)), Json::object());
  EXPECT_EQ(earlier_metrics(records, job_of(1)).at("pinned").at("loss"), 1);
}

TEST(EarlierMetrics, AreOfThisCaseArmAndSourceAlone) {
  RecordSummary other_case = launch_of(0, "pinned", 1);
  other_case.case_name = "transfer/copy/bytes:8";
  RecordSummary duet = launch_of(0, "pinned", 1);
  duet.arm = "pinned";
  EXPECT_EQ(earlier_metrics({other_case, duet, launch_of(0, "pinned", 1, "2b")}, job_of(1)), Json::object());
}

TEST(LatestRecords, TheLastOfALaunchCounts) {
  LatestRecords latest;
  latest.add(summary_of(record(context(), 0, "error")));
  latest.add(summary_of(record(context(), 1, "ok")));
  latest.add(summary_of(record(context(), 0, "ok")));
  ASSERT_EQ(latest.all().size(), 2U);
  for (const int launch : {0, 1}) {
    EXPECT_EQ(latest.all().at(launch).launch, launch);
    EXPECT_EQ(latest.all().at(launch).outcome, "ok");
  }
}

TEST(LatestRecords, CasesAndArmsOfADuetAreKeptApart) {
  LatestRecords latest;
  for (const char* arm : {"pinned", "pageable"}) {
    Json duet = record(context());
    duet["arm"] = arm;
    latest.add(summary_of(duet));
  }
  Json other = record(context());
  other["case_id"] = "bytes:8";
  latest.add(summary_of(other));
  EXPECT_EQ(latest.all().size(), 3U);
}

}  // namespace
}  // namespace gpulift
