#include "job.hpp"

#include <gtest/gtest.h>

#include <set>

#include "core/harness/record_file.hpp"
#include "core/host/measure/case_run.hpp"
#include "core/host/measure/trial.hpp"
#include "core/host/processes/supervisor.hpp"

namespace gpulift {
namespace {

Job example_job() {
  Job job;
  job.technique = "transfer/copy";
  job.module = "somewhere/transfer.copy.so";
  job.case_id = "bytes:4";
  job.point = {{"bytes", 4}};
  job.quick = true;
  job.regime = "burst";
  job.launch = 2;
  job.recalled = {{"algorithm", "7"}};
  return job;
}

TEST(Job, ComesBackFromJson) {
  Job job = example_job();
  job.base_module = "elsewhere/transfer.copy.so";
  job.arm = "pinned";
  job.side = "base";
  job.about = {{"question", "Why?"}};
  job.gpus = 2;
  job.all_workers = true;
  job.arms = {"pageable", "pinned"};
  job.earlier = {{"pinned", {{"loss", 2.5}}}};
  job.script = {{"arms", {"pageable", "pinned"}}};
  EXPECT_EQ(to_json(job_from_json(to_json(job))), to_json(job));
  EXPECT_TRUE(job_from_json(to_json(job)).is_duet());
}

TEST(RunSettings, ComeBackFromJson) {
  RunSettings settings;
  settings.launches = 5;
  settings.quick = true;
  settings.arm_time_s = 0.7;
  settings.precision = 0.1;
  settings.timeout_s = 3;
  settings.seed = 99;
  settings.gpus = {4, 2};
  settings.scratch = "/var/tmp/gpulift-123456";
  settings.scratch_missing = "it is full";
  settings.plant = 0.01;
  settings.python = "new/bin/python";
  settings.base_python = "old/bin/python";
  EXPECT_EQ(to_json(settings_from_json(to_json(settings))), to_json(settings));
}

TEST(RunSettings, ThePathOfAnInterpreterIsInNoRecord) {
  RunSettings settings;
  settings.python = settings.base_python = settings.scratch = "/home/somebody/python";
  EXPECT_EQ(options_of(settings).dump().find("somebody"), std::string::npos);
  EXPECT_EQ(begin_record(example_job(), settings).dump().find("somebody"), std::string::npos);
}

TEST(WithoutFolders, NamesFilesAloneAndLeavesTheRest) {
  EXPECT_EQ(without_folders("cannot open \"/home/me/data/a.bin\": full"), "cannot open \"a.bin\": full");
  EXPECT_EQ(without_folders("/tmp/x/y.so: no"), "y.so: no");
  for (const char* same : {"run ./gpulift setup", "5 GB/s", "either/or/both", "no GPU", "https://a.b/c/d"})
    EXPECT_EQ(without_folders(same), same);
}

TEST(BeginRecord, HasThePredictionsOfItsOwnCase) {
  Job job = example_job();
  const auto speedup = nlohmann::ordered_json::array({2, 3});
  job.about = about_technique({{"predict",
                                {{{"arm", "every"}, {"case", {{}}}, {"speedup", speedup}},
                                 {{"arm", "own"}, {"case", {{"bytes", 4}}}, {"on", "h100"}, {"speedup", speedup}},
                                 {{"arm", "other"}, {"case", {{"bytes", 8}}}, {"speedup", speedup}},
                                 {{"arm", "further"}, {"case", {{"axis", 4}}}, {"speedup", speedup}}}},
                               {"found", "So it is."},
                               {"l2", "cold"},
                               {"page_cache", ""}});
  job.about["predict"][0]["case"] = nlohmann::ordered_json::object();
  const auto record = begin_record(job, {});
  EXPECT_EQ(record.at("predict").dump(),
            R"([{"arm":"every","speedup":[2,3]},{"arm":"own","on":"h100","speedup":[2,3]}])");
  EXPECT_EQ(record.at("found"), "So it is.");
  EXPECT_EQ(record.at("l2"), "cold");
  EXPECT_FALSE(record.contains("page_cache"));
  job.about["predict"] = {job.about["predict"][2]};
  EXPECT_FALSE(begin_record(job, {}).contains("predict"));
}

TEST(BeginRecord, SaysWhatIsKnownBeforeTheCaseRuns) {
  Job job = example_job();
  job.about = about_technique({{"id", "transfer/copy"},
                               {"question", "Why?"},
                               {"expectation", "So."},
                               {"claims", {"a_claim"}},
                               {"ceiling", true},
                               {"cases", {1}}});
  const auto record = begin_record(job, RunSettings{});
  EXPECT_EQ(record.at("schema"), kSchemaVersion);
  EXPECT_EQ(record.at("method"), kMethodVersion);
  EXPECT_EQ(record.at("kind"), "technique");
  EXPECT_EQ(record.at("launch"), 2);
  EXPECT_EQ(record.at("question"), "Why?");
  EXPECT_EQ(record.at("expectation"), "So.");
  EXPECT_EQ(record.at("claims").dump(), R"(["a_claim"])");
  EXPECT_EQ(record.at("ceiling"), true);
  EXPECT_FALSE(record.contains("cases"));
  EXPECT_EQ(record.at("outcome"), "error") << "until something better is known";
  EXPECT_FALSE(record.contains("arm"));
  EXPECT_FALSE(record.dump().find("somewhere") != std::string::npos) << "no path in a record";
}

TEST(BeginRecord, NamesTheTraitsThatTheTechniqueHas) {
  Job job = example_job();
  job.about = about_technique({{"ceiling", false}, {"integrity", false}, {"launch_bound", true}, {"controls", {"b"}}});
  const auto record = begin_record(job, RunSettings{});
  EXPECT_EQ(record.at("launch_bound"), true);
  EXPECT_EQ(record.at("controls").dump(), R"(["b"])");
  EXPECT_FALSE(record.contains("integrity"));
  job.about = about_technique({{"controls", nlohmann::ordered_json::array()}});
  EXPECT_FALSE(begin_record(job, RunSettings{}).contains("controls"));
}

TEST(BeginRecord, OfADuetNamesItsArm) {
  Job job = example_job();
  job.base_module = "elsewhere/transfer.copy.so";
  job.arm = "pinned";
  job.side = "base";
  const auto record = begin_record(job, RunSettings{});
  EXPECT_EQ(record.at("kind"), "duet");
  EXPECT_EQ(record.at("ceiling"), false);
  EXPECT_EQ(record.at("arm"), "pinned");
}

TEST(SetOutcome, KeepsReasonAndRemedyOnOneLine) {
  nlohmann::ordered_json record;
  set_outcome(record, "skipped", "two\nlines", "try\nthis");
  EXPECT_EQ(record.dump(), R"({"outcome":"skipped","reason":"two lines","remedy":"try this"})");
  nlohmann::ordered_json plain;
  set_outcome(plain, "error", "bad");
  EXPECT_FALSE(plain.contains("remedy"));
}

TEST(CaseSeed, DiffersBetweenLaunchesCasesAndRuns) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    for (int launch = 0; launch < 20; ++launch) {
      for (const char* id : {"bytes:4", "bytes:8"}) {
        Job job = example_job();
        job.launch = launch;
        job.case_id = id;
        RunSettings settings;
        settings.seed = seed;
        EXPECT_LT(case_seed(job, settings), std::uint64_t{1} << 53) << "some readers of JSON lose digits above";
        seeds.insert(case_seed(job, settings));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 200U);
}

TEST(CaseSeed, IsTheSameForBothSidesOfADuet) {
  Job duet = example_job();
  duet.base_module = "elsewhere";
  duet.arm = "pinned";
  EXPECT_EQ(case_seed(duet, RunSettings{}), case_seed(example_job(), RunSettings{}));
}

TEST(PlannedTime, IsThatOfTheArmsOrOfTheLongWindows) {
  EXPECT_DOUBLE_EQ(planned_s(example_job(), RunSettings{}, 2), 0.6);
  Job sustained = example_job();
  sustained.regime = "sustained";
  EXPECT_GT(planned_s(sustained, RunSettings{}, 1), 3.0);
}

TEST(MeasuredOnce, AreSustainedCasesAndWholeStepsOfAQuickRun) {
  Job sustained = example_job();
  sustained.regime = "sustained";
  Job steps = example_job();
  steps.whole_steps = true;
  RunSettings settings;
  for (const bool quick : {true, false}) {
    settings.quick = quick;
    EXPECT_EQ(is_measured_once(sustained, settings), quick);
    EXPECT_EQ(is_measured_once(steps, settings), quick);
    EXPECT_FALSE(is_measured_once(example_job(), settings));
  }
}

TEST(StepName, CountsTheLaunchesThatTheCaseHas) {
  Job job = example_job();
  RunSettings settings;
  settings.quick = true;
  settings.launches = 3;
  EXPECT_EQ(step_name(job, settings), "transfer/copy/bytes:4, launch 3 of 3");
  job.launch = 0;
  job.whole_steps = true;
  EXPECT_EQ(step_name(job, settings), "transfer/copy/bytes:4, launch 1 of 1");
}

TEST(TimeoutOf, IsLongerForWholeSteps) {
  RunSettings settings;
  settings.timeout_s = 10;
  Job job;
  EXPECT_EQ(timeout_of(job, settings), 10);
  job.whole_steps = true;
  EXPECT_EQ(timeout_of(job, settings), 80);
}

TEST(RemedyOfError, OfACaseThatNoSweepHasIsAnotherValue) {
  Job job = example_job();
  EXPECT_EQ(remedy_of_error(job), "");
  job.off_sweep = true;
  EXPECT_NE(remedy_of_error(job).find("--axis"), std::string::npos);
}

}  // namespace
}  // namespace gpulift
