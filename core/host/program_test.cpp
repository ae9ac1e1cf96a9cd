// What a user sees of gpulift-bench on any machine, above all when things go wrong.
#include "core/host/testing/program.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "core/harness/host_limits.hpp"
#include "core/harness/record_file.hpp"
#include "core/harness/stop_rule.hpp"
#include "core/harness/testing/said_on_mount.hpp"
#include "core/harness/window.hpp"

namespace gpulift {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class Program : public testing_programs::ProgramTest {
 protected:
  static double median_step_s(const Json& arm) {
    return median(arm.at("windows").at("host_s").get<std::vector<double>>()) / arm.at("steps_per_window").get<double>();
  }
};

// Wrong usage: one line that says what to do, exit code 2, nothing measured.

class WrongUsage : public Program,
                   public testing::WithParamInterface<std::pair<std::vector<std::string>, std::string>> {};

TEST_P(WrongUsage, IsOneClearLineAndExitCode2) {
  const auto& [arguments, expected] = GetParam();
  auto all = measure_arguments(modules({"fine"}), {});
  all.insert(all.end(), arguments.begin(), arguments.end());
  const Result result = run(all);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, HasSubstr(expected));
  EXPECT_LE(lines_of(result.errors).size(), 2U) << result.errors;
  EXPECT_THAT(result.output, IsEmpty());
  EXPECT_THAT(records(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Arguments, WrongUsage,
    testing::Values(std::pair(std::vector<std::string>{"--no-such-option"}, "--no-such-option"),
                    std::pair(std::vector<std::string>{"stray"}, "stray"),
                    std::pair(std::vector<std::string>{"--benchmark_no_such"}, "benchmark_no_such"),
                    std::pair(std::vector<std::string>{"--arm-time", "-1"}, "--arm-time"),
                    std::pair(std::vector<std::string>{"--benchmark_repetitions=none"}, "--benchmark_repetitions"),
                    std::pair(std::vector<std::string>{"--head", "somewhere"}, "--base"),
                    std::pair(std::vector<std::string>{"--gpus", "0,0"}, "twice"),
                    std::pair(std::vector<std::string>{"--gpus", "-1"}, "--gpus"),
                    std::pair(std::vector<std::string>{"--gpus", "0,64"}, "--gpus"),
                    std::pair(std::vector<std::string>{"--rows", "/no/such/file"}, "rows"),
                    std::pair(std::vector<std::string>{"--axis", "rounds"}, "rows=4096,8192"),
                    std::pair(std::vector<std::string>{"--axis", "ruonds=5"}, "there are rounds"),
                    std::pair(std::vector<std::string>{"--axis", "rounds=many"}, "takes whole numbers"),
                    std::pair(std::vector<std::string>{"--profile", "--base", "b", "--head", "h"}, "--profile"),
                    std::pair(std::vector<std::string>{"--given-ranks", "/no/such/file"}, "--given-ranks"),
                    std::pair(std::vector<std::string>{"--benchmark_filter=no_such_case"},
                              "no case matches the filter"),
                    std::pair(std::vector<std::string>{"--benchmark_filter=("}, "no regular expression"),
                    std::pair(std::vector<std::string>{"--benchmark_out=/no/such/folder/out.json"}, "out.json")));

TEST_F(Program, HelpIsNoError) {
  const Result result = run({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("--benchmark_filter"), HasSubstr("Exit codes")));
}

TEST_F(Program, AFolderWithoutModulesIsWrongUsage) {
  for (const auto& folder : {folder_ / "tmp", folder_ / "missing"}) {
    const Result result = run({"--modules", folder.string()});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(lines_of(result.errors), ElementsAre(StartsWith("gpulift-bench: no ")));
  }
}

// The front.

TEST_F(Program, ListsWithoutMeasuring) {
  const Result result = run({"--modules", modules({"fine"}).string(), "--benchmark_list_tests"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(lines_of(result.output), ElementsAre("testing/fine/rounds:1000/baseline/iterations:1/manual_time",
                                                   "testing/fine/rounds:1000/twice/iterations:1/manual_time",
                                                   "testing/fine/rounds:4000/baseline/iterations:1/manual_time",
                                                   "testing/fine/rounds:4000/twice/iterations:1/manual_time"));
  EXPECT_THAT(result.errors, IsEmpty());
}

TEST_F(Program, ListsWhatTheFilterAndQuickSelect) {
  const auto folder = modules({"fine"}).string();
  EXPECT_THAT(lines_of(run({"--modules", folder, "--benchmark_list_tests", "--benchmark_filter=4000/twice"}).output),
              SizeIs(1));
  EXPECT_THAT(lines_of(run({"--modules", folder, "--benchmark_list_tests", "--benchmark_filter=-twice"}).output),
              AllOf(SizeIs(2), Not(Contains(HasSubstr("twice")))));
  EXPECT_THAT(lines_of(run({"--modules", folder, "--benchmark_list_tests", "--quick"}).output),
              AllOf(SizeIs(2), Not(Contains(HasSubstr("4000")))));
}

TEST_F(Program, ListsTheCasesOfTheAxesThatItIsGiven) {
  const std::vector<std::string> asked{"--modules", modules({"fine", "host"}).string(), "--axis", "rounds=7,4000",
                                       "--benchmark_list_tests"};
  EXPECT_THAT(lines_of(run(asked).output), ElementsAre("testing/fine/rounds:7/baseline/iterations:1/manual_time",
                                                       "testing/fine/rounds:7/twice/iterations:1/manual_time",
                                                       "testing/fine/rounds:4000/baseline/iterations:1/manual_time",
                                                       "testing/fine/rounds:4000/twice/iterations:1/manual_time"));
  auto filtered = asked;
  filtered.emplace_back("--benchmark_filter=rounds:7/twice");
  EXPECT_THAT(lines_of(run(filtered).output), SizeIs(1)) << "the filter knows the cases by their new names";
  filtered.back() = "--catalogue";
  EXPECT_EQ(Json::parse(run(filtered).output).at(0).at("cases").at(0).at("id"), "rounds:7");
}

// Listing reads the manifests alone: a module that would not load does no harm.
TEST_F(Program, ListingLoadsNoModule) {
  const auto folder = modules({"fine"});
  std::filesystem::remove(folder / "testing.fine.so");
  EXPECT_EQ(run({"--modules", folder.string(), "--benchmark_list_tests"}).exit_code, 0);
}

TEST_F(Program, CatalogueIsTheManifests) {
  const Result result = run({"--modules", modules({"fine", "ranks"}).string(), "--catalogue"});
  EXPECT_EQ(result.exit_code, 0);
  const Json catalogue = Json::parse(result.output);
  ASSERT_EQ(catalogue.size(), 2U);
  EXPECT_EQ(catalogue[0].at("id"), "testing/fine");
  EXPECT_THAT(catalogue[0].at("arms"), ElementsAre("baseline", "twice"));
  EXPECT_EQ(catalogue[0].at("cases").size(), 2U);
}

TEST_F(Program, DescribesTheMachineWithOrWithoutAGpu) {
  const Result result = run({"--describe"});
  EXPECT_EQ(result.exit_code, 0);
  const Json context = Json::parse(result.output);
  EXPECT_TRUE(context.contains("gpu") != context.contains("gpu_missing"));
  EXPECT_GT(context.at("host").at("cores"), 0);
  EXPECT_FALSE(context.at("build").at("compiler").get<std::string>().empty());
}

TEST_F(Program, AnEmptyListOfVisibleDevicesIsAReasonAndNoError) {
  const Result result = run({"--describe"}, {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_FALSE(Json::parse(result.output).at("gpu_missing").get<std::string>().empty());
}

TEST_F(Program, WritesWhatGoogleBenchmarkWrites) {
  const auto out = folder_ / "out.json";
  const Result result = measure(modules({"fine"}), {"--launches", "2", "--benchmark_out=" + out.string(),
                                                    "--benchmark_format=json", "--benchmark_filter=rounds:1000"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json on_disk = Json::parse(testing_programs::content_of(out));
  EXPECT_EQ(Json::parse(result.output).at("benchmarks").size(), on_disk.at("benchmarks").size());
  EXPECT_TRUE(on_disk.at("context").contains("gpulift_commit"));
  int repetitions = 0;
  std::set<double> speedups;
  for (const Json& row : on_disk.at("benchmarks")) {
    if (row.at("run_type") != "iteration" ||
        row.at("name") != "testing/fine/rounds:1000/twice/iterations:1/manual_time")
      continue;
    ++repetitions;
    EXPECT_GT(row.at("real_time"), 0);
    EXPECT_GT(row.at("items_per_second"), 0);
    speedups.insert(row.at("speedup").get<double>());
  }
  EXPECT_EQ(repetitions, 2);
  std::set<double> from_records;
  for (const Json& record : records()) {
    from_records.insert(median_step_s(record.at("arms")[0]) / median_step_s(record.at("arms")[1]));
  }
  EXPECT_THAT(speedups, testing::Pointwise(testing::DoubleNear(1e-6), from_records));
}

TEST_F(Program, ReportsTheArmsOfACaseThatTheFilterNamesToItsEnd) {
  const Result result = measure(modules({"fine"}), {"--launches", "1", "--benchmark_format=json",
                                                    "--benchmark_filter=^testing/fine/rounds:1000$"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(Json::parse(result.output).at("benchmarks").size(), 2U);
}

TEST_F(Program, GoogleBenchmarksFileIsNotLeftEmptyWhereNothingIsMeasured) {
  const auto out = folder_ / "out.json";
  const auto with_out = [&](const std::string& argument) {
    return run(measure_arguments(folder_ / "modules", {"--benchmark_out=" + out.string(), argument})).exit_code;
  };
  modules({"fine"});
  EXPECT_EQ(with_out("--benchmark_filter=no_such_case"), 2);
  EXPECT_EQ(with_out("--benchmark_no_such"), 2);
  EXPECT_EQ(with_out("--benchmark_list_tests"), 0);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(Program, ALaunchIsARepetition) {
  EXPECT_EQ(measure(modules({"fine"}), {"--quick", "--launches", "1"}).exit_code, 0);
  EXPECT_EQ(records().size(), 1U);
  auto both = measure_arguments(modules({}), {"--benchmark_repetitions=2"});
  EXPECT_EQ(run(both).exit_code, 2) << "both --launches and --benchmark_repetitions";
}

TEST_F(Program, AFilterThatOnlyMatchesWhatWasNotBuiltSaysSoAndThatNothingRan) {
  const auto folder = modules({"fine"});
  std::ofstream(folder / "model.net.json")
      << R"({"id": "model/net", "unavailable": "built without LibTorch", "remedy": "set it up"})";
  const auto arguments = measure_arguments(folder, {"--benchmark_filter=^model/"});
  const Result result = run(arguments);
  EXPECT_EQ(result.exit_code, 77);
  EXPECT_THAT(lines_of(result.errors),
              ElementsAre("gpulift-bench: model/net cannot run here: built without LibTorch; set it up"));
  EXPECT_THAT(records(), IsEmpty());
}

// Records.

TEST_F(Program, AFineCaseIsAWholeRecord) {
  const Result result = measure(modules({"fine"}), {"--quick"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json record = record_of("fine");
  EXPECT_EQ(record.at("schema"), kSchemaVersion);
  EXPECT_EQ(record.at("kind"), "technique");
  EXPECT_EQ(record.at("outcome"), "ok");
  EXPECT_EQ(record.at("case").at("rounds"), 1000);
  EXPECT_EQ(record.at("case_id"), "rounds:1000");
  EXPECT_EQ(record.at("check").at("meaning"), "exact number");
  EXPECT_EQ(record.at("arms").size(), 2U);
  const std::size_t windows = 2 * record.at("order").at("blocks").size();
  for (const Json& arm : record.at("arms")) {
    EXPECT_EQ(arm.at("clock"), "host");
    EXPECT_EQ(arm.at("check_error"), 0.0);
    EXPECT_EQ(arm.at("windows").at("host_s").size(), windows);
    EXPECT_FALSE(arm.at("windows").contains("device_s"));
    EXPECT_FALSE(arm.contains("metrics"));
    EXPECT_FALSE(arm.at("cost").contains("item"));
  }
  EXPECT_EQ(record.at("arms")[0].at("role"), "baseline");
  EXPECT_EQ(record.at("arms")[1].at("role"), "technique");
  EXPECT_GE(record.at("restarts"), 0);
  EXPECT_EQ(record.at("stop").at("blocks"), record.at("order").at("blocks").size());
  EXPECT_GT(windows, 0U);
  EXPECT_FALSE(record.at("telemetry_missing").get<std::string>().empty());
  EXPECT_TRUE(record.at("context").contains("host"));
}

TEST_F(Program, ACaseThatNoSweepHasSaysSoAndHoldsNoPrediction) {
  const auto folder = modules({"fine"});
  change_manifest(folder, "fine", [](Json& manifest) {
    manifest["predict"] = {{{"arm", "twice"}, {"case", Json::object()}, {"speedup", {0.4, 0.6}}}};
  });
  const Result result = measure(folder, {"--quick", "--launches", "1", "--axis", "rounds=1000,2000"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  std::map<std::string, Json> found;
  for (const Json& record : records()) found[record.at("case_id")] = record;
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found["rounds:2000"].at("case").at("rounds"), 2000);
  EXPECT_EQ(found["rounds:2000"].at("off_sweep"), true);
  EXPECT_FALSE(found["rounds:2000"].contains("predict"));
  EXPECT_FALSE(found["rounds:1000"].contains("off_sweep"));
  EXPECT_TRUE(found["rounds:1000"].contains("predict"));
}

TEST_F(Program, AValueThatATechniqueRefusesCostsItsCaseAlone) {
  const Result result = measure(modules({"fine"}), {"--launches", "1", "--axis", "rounds=2000000,10"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, AllOf(HasSubstr("testing/fine/rounds:2000000"),
                                   HasSubstr("more rounds than there may be; the sweep has no "
                                             "such case: give --axis values nearer")));
  std::map<std::string, std::string> outcomes;
  for (const Json& record : records()) outcomes[record.at("case_id")] = record.at("outcome");
  EXPECT_EQ(outcomes, (std::map<std::string, std::string>{{"rounds:10", "ok"}, {"rounds:2000000", "error"}}));
}

TEST_F(Program, AValueThatAScriptRefusesIsOneLine) {
  const Result result = measure(modules({"script_sizes"}), {"--launches", "1", "--axis", "size=3,4"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(
      result.errors,
      AllOf(HasSubstr("ValueError: sizes are even (testing.script_sizes.py, line 18); the sweep has no such case"),
            Not(HasSubstr("Traceback"))));
  std::map<int, std::string> outcomes;
  for (const Json& record : records()) outcomes[record.at("case").at("size")] = record.at("outcome");
  EXPECT_EQ(outcomes, (std::map<int, std::string>{{3, "error"}, {4, "ok"}}));
}

TEST_F(Program, MoreRanksThanMemoryHoldsAreNotStarted) {
  const std::size_t ranks = (allowed_memory_bytes() >> 28) + 1;
  if (ranks > 1024) GTEST_SKIP() << "it holds all that --axis takes";
  const Result result =
      measure(modules({"script_sizes"}), {"--launches", "1", "--axis", "ranks=" + std::to_string(ranks)});
  const Json arm = record_of("script_sizes").at("arms").at(1);
  EXPECT_EQ(arm.at("outcome"), "skipped") << result.errors;
  EXPECT_EQ(arm.at("reason"), "its " + std::to_string(ranks) + " ranks are more than this machine's memory holds");
}

TEST_F(Program, WhatIsProfiledIsTheChosenArmAloneAndHasNoTimes) {
  const Result result =
      measure(modules({"processes"}), {"--profile", "--launches", "1", "--benchmark_filter=/(other|python)$"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json record = record_of("processes");
  EXPECT_EQ(record.at("outcome"), "ok");
  EXPECT_EQ(record.at("context").at("options").at("profile"), true);
  ASSERT_EQ(record.at("arms").size(), 2U) << "without the baseline";
  for (const Json& arm : record.at("arms")) {
    EXPECT_TRUE(arm.contains("cost"));
    EXPECT_TRUE(arm.contains("check_error"));
    EXPECT_FALSE(arm.contains("windows"));
  }
}

TEST_F(Program, RanksAreNotProfiled) {
  EXPECT_EQ(measure(modules({"ranks"}), {"--profile", "--launches", "1", "--benchmark_filter=fine/other$"}).exit_code,
            77);
  EXPECT_THAT(record_of("ranks").at("reason"), HasSubstr("has ranks"));
}

TEST_F(Program, TellsHowBusyTheHostWas) {
  const Result result = run({"--modules", modules({"fine"}).string(), "--records", records_folder().string(), "--quick",
                             "--launches", "1", "--arm-time", "0.2", "--precision", "0.000001"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json load = record_of("fine").at("host_load");
  EXPECT_GT(load.at("own_cores"), 0.0) << "the arms never sleep";
  EXPECT_GE(load.at("other_cores"), 0.0);
  EXPECT_GE(load.at("stolen_cores"), 0.0);
}

TEST_F(Program, TellsWhereTheTimeOfACaseWent) {
  EXPECT_EQ(measure(modules({"fine"}), {"--quick"}).exit_code, 0);
  const Json time_s = record_of("fine").at("time_s");
  double parts_s = 0;
  for (const char* part : {"before_compare", "start", "reference", "compile", "checks", "allocation", "lead_in", "wake",
                           "windows", "energy"}) {
    EXPECT_GE(time_s.at(part), 0.0) << part;
    parts_s += time_s.at(part).get<double>();
  }
  EXPECT_LE(parts_s, time_s.at("total").get<double>() + 1e-6);
}

TEST_F(Program, WhatAnArmSaysOfItselfIsInItsRecordWhereverItRuns) {
  const Result result = measure(modules({"processes"}), {"--quick"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json arms = record_of("processes").at("arms");
  for (const Json& arm : arms) {
    EXPECT_EQ(arm.at("metrics").at("peak_allocated_bytes"), 4096);
    EXPECT_EQ(arm.at("peak_device_bytes"), 4096) << "an allocator knows better than the device's free memory";
    EXPECT_EQ(arm.at("cost").at("item"), "image");
  }
  EXPECT_EQ(arms[0].at("metrics").at("steps_before"), 1) << "asked after the check";
  EXPECT_EQ(arms[1].at("metrics").at("steps_before"), 1) << "also in a process of its own";
  EXPECT_FALSE(arms[2].at("metrics").contains("steps_before")) << "Python says its own";
}

TEST_F(Program, RecordsNameNoHostUserOrPath) {
  EXPECT_EQ(measure(modules({"fine", "host"}),
                    {"--benchmark_filter=fine|does:(throws|fits_not_together|other_fits_not|baseline_fits_not)$"})
                .exit_code,
            1);
  std::string all;
  for (const auto& record : records()) all += record.dump() + "\n";
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  EXPECT_THAT(all, Not(HasSubstr(folder_.string())));
  EXPECT_THAT(all, Not(HasSubstr(GPULIFT_SOURCE_FOLDER)));
  EXPECT_THAT(all, Not(HasSubstr(GPULIFT_BUILD_FOLDER)));
  EXPECT_THAT(all, Not(HasSubstr("\"" + std::string(host.data()) + "\"")));
  EXPECT_THAT(all, Not(HasSubstr("/home/")));
}

TEST_F(Program, EachLaunchHasItsOwnSeedAndOrderAndHearsOfTheLast) {
  EXPECT_EQ(measure(modules({"fine"}), {"--quick", "--launches", "2"}).exit_code, 0);
  auto both = records();
  ASSERT_EQ(both.size(), 2U);
  EXPECT_NE(both[0].at("order").at("seed"), both[1].at("order").at("seed"));
  EXPECT_THAT(both[0].at("order").at("allocation"), ElementsAre(0, 1));
  EXPECT_THAT(both[1].at("order").at("allocation"), ElementsAre(1, 0));
  EXPECT_EQ(both[0].at("notes").at("recalled"), "nothing");
  EXPECT_EQ(both[1].at("notes").at("recalled"), both[0].at("notes").at("seed"));
}

TEST_F(Program, ARunRecallsWhatAnotherNotedWhereItIsToldTo) {
  const auto folder = modules({"fine"});
  ASSERT_EQ(measure(folder, {"--quick", "--launches", "1"}).exit_code, 0);
  const Json before = record_of("fine");
  const auto other = folder_ / "other";
  std::filesystem::rename(records_folder(), other);
  EXPECT_EQ(measure(folder, {"--quick", "--launches", "1", "--seed", "7", "--recall", other.string()}).exit_code, 0);
  EXPECT_EQ(record_of("fine").at("notes").at("recalled"), before.at("notes").at("seed"));
  EXPECT_EQ(run({"--modules", folder.string(), "--recall", (folder_ / "none").string()}).exit_code, 2);
}

TEST_F(Program, AQuickRunTakesOneLaunchOfWholeSteps) {
  const auto folder = modules({"fine", "processes"});
  ASSERT_EQ(measure(folder, {"--quick", "--launches", "2"}).exit_code, 0);
  std::map<std::string, int> launches;
  for (const Json& record : records()) ++launches[record.at("technique")];
  EXPECT_EQ(launches, (std::map<std::string, int>{{"testing/fine", 2}, {"testing/processes", 1}}));
}

TEST_F(Program, SustainedCasesHaveFewLongWindows) {
  const auto folder = modules({"fine"});
  change_manifest(folder, "fine", [](Json& manifest) {
    manifest["cases"].erase(1);
    manifest["cases"][0]["regime"] = "sustained";
  });
  const Result result = measure(folder, {"--quick"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json record = record_of("fine");
  EXPECT_EQ(record.at("regime"), "sustained");
  ASSERT_TRUE(record.contains("arms")) << record.at("reason");
  for (const Json& arm : record.at("arms")) {
    // Of a second each, shorter where the machine's speed changes meanwhile; those of a burst last 10 ms.
    EXPECT_THAT(arm.at("windows").at("host_s"), SizeIs(2));
    EXPECT_THAT(arm.at("windows").at("host_s"), Contains(Gt(0.1)));
  }
}

// A technique that goes wrong costs its own case alone.

struct Misdeed {
  const char* does;
  const char* outcome;
  const char* reason;
};

TEST_F(Program, EveryOtherCaseIsMeasuredAndKept) {
  const std::vector<Misdeed> misdeeds{
      {"throws", "error", "thrown on purpose, in two lines"},
      {"writes_nothing", "failed", "arm other does not give the same result: error 1.0"},
      {"errs_by_nan", "failed", "arm baseline does not give the same result: error nan"},
      {"crashes", "error", "signal 11 (Segmentation fault)"},
      {"hangs", "error", "no sign of life within"},
      {"compares_nothing", "error", "without comparing"},
      {"has_no_check", "error", "what the same result is"},
      {"has_other_arms", "error", "the arms that the technique declares"},
      {"fits_not_together", "skipped", "out of memory: asked for too much"},
      {"skips", "skipped", "not on this machine"},
      {"costs_infinity", "failed", "not finite: arms.0.cost.items"},
      {"measures_nan", "failed", "not finite: arms.other.metrics.speed"},
      {"names_no_roof", "failed", "arm baseline: its cost names the roof 'host_memroy'"},
      {"worker_crashes", "error", "the worker of arm other ended with signal 11"},
      {"kills_itself", "error", "the worker of arm baseline ended with signal 11"},
      {"errs_below_0", "failed", "arm baseline: its check gave an error below 0: -1.0"},
      {"sleeps", "error", "the worker of arm baseline did not answer within 2 s (see --timeout)"},
      {"raises", "error", "the worker of arm baseline: ValueError: raised on purpose"},
      {"gives_no_number", "failed", "arm other does not give the same result: error nan"},
      {"hides_time", "failed", "arm other: its marks are not around its work"},
      {"imports_nothing", "skipped", "the Python package gpulift_no_such_package is not installed"},
      {"measures_no_number", "error", "ValueError: the metric speed is not finite"},
      {"has_undeclared_python", "error", "the Python arms that the technique declares"},
  };
  std::vector<std::string> words;
  for (const Misdeed& misdeed : misdeeds) words.emplace_back(misdeed.does);
  const Result result =
      measure(modules({"fine", "host", "script"}), {"--quick", "--timeout", "2", does(words) + "|^testing/fine"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(record_of("fine").at("outcome"), "ok");
  for (const Misdeed& misdeed : misdeeds) {
    const Json record = record_of(misdeed.does);
    EXPECT_EQ(record.value("outcome", ""), misdeed.outcome) << misdeed.does;
    EXPECT_THAT(record.value("reason", ""), HasSubstr(misdeed.reason)) << misdeed.does;
    EXPECT_TRUE(record.contains("context")) << misdeed.does;
    EXPECT_FALSE(record.value("question", "").empty()) << misdeed.does;
    EXPECT_FALSE(record.value("expectation", "").empty()) << misdeed.does;
    EXPECT_TRUE(record.contains("claims")) << misdeed.does;
    EXPECT_EQ(record.at("context").at("options").at("quick"), true) << misdeed.does;
    EXPECT_THAT(lines_of(result.errors),
                Contains(AllOf(HasSubstr(std::string("does:") + misdeed.does), HasSubstr(misdeed.reason))));
  }
}

TEST_F(Program, AWrongArmFailsTheRunAndTheOthersAreKept) {
  const Result result = measure(modules({"script_wrong"}), {"--launches", "1"});
  EXPECT_EQ(result.exit_code, 1);
  const std::string wrong = "failed: arm wrong does not give the same result: error 1.0";
  EXPECT_THAT(lines_of(result.errors), Contains(HasSubstr("launch 1 of 1: ok, but " + wrong)));
  const Json record = record_of("script_wrong");
  EXPECT_EQ(record.at("outcome"), "ok");
  EXPECT_TRUE(record.at("arms")[1].contains("windows"));
  EXPECT_EQ(record.at("arms")[2].at("outcome"), "failed");
}

// Google Benchmark aborted where repetitions had different numbers of iterations, as a failed one has.
TEST_F(Program, OneOfSeveralLaunchesThatFailsIsAResult) {
  const auto arguments = measure_arguments(modules({"script"}), {"--launches", "3", does({"raises_in_second_launch"})});
  const Result result = run(arguments, {{"GPULIFT_TESTING_LAUNCHES", records_folder().string() + ".launches"}});
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  std::vector<std::string> outcomes;
  for (const Json& record : records()) outcomes.push_back(record.at("outcome"));
  EXPECT_THAT(outcomes, ElementsAre("ok", "error", "ok"));
}

// Arms of several ranks.

TEST_F(Program, ARankThatGoesWrongIsNamedAndTheOtherIsEnded) {
  const double start_s = now_s();
  EXPECT_EQ(measure(modules({"ranks"}), {"--timeout", "3"}).exit_code, 1);
  EXPECT_LT(now_s() - start_s, 60) << "nobody waits for a collective that cannot come";
  std::map<std::string, Json> by_manner;
  for (const Json& record : records()) by_manner[record.at("case").at("rank_1")] = record;
  ASSERT_EQ(by_manner.size(), 6U);
  for (const char* fine : {"fine", "late"}) {
    const Json& record = by_manner.at(fine);
    ASSERT_EQ(record.at("outcome"), "ok") << record.value("reason", "");
    const Json& arm = record.at("arms")[1];
    EXPECT_EQ(arm.at("ranks"), 2);
    EXPECT_EQ(arm.at("environment").at("NCCL_ALGO"), "Ring");
    EXPECT_GE(arm.at("lead_in_steps"), 1) << "which brings the ranks in line";
    EXPECT_EQ(arm.at("windows").at("cpu_s").size(), arm.at("windows").at("host_s").size());
    EXPECT_FALSE(record.at("context").contains("gpus")) << "these ranks have none";
  }
  const auto reason = [&](const char* manner) { return by_manner.at(manner).value("reason", ""); };
  EXPECT_EQ(by_manner.at("dies").at("outcome"), "error");
  EXPECT_THAT(reason("dies"), StartsWith("rank 1 of arm other ended with signal 9"));
  EXPECT_EQ(by_manner.at("hangs").at("outcome"), "error");
  EXPECT_THAT(reason("hangs"), StartsWith("rank 1 of arm other did not answer within"));
  EXPECT_EQ(by_manner.at("differs").at("outcome"), "failed");
  EXPECT_THAT(reason("differs"), StartsWith("arm other, rank 1, does not give the same result"));
  EXPECT_EQ(by_manner.at("exhausted").at("outcome"), "ok") << "the baseline fits";
  EXPECT_THAT(by_manner.at("exhausted").at("arms")[1].at("reason").get<std::string>(),
              HasSubstr("out of memory: rank 1 asked for too much"));
}

TEST_F(Program, KillingTheRunOrCtrlCLeavesNoRankBehind) {
  const auto arguments = measure_arguments(modules({"ranks"}), {"--benchmark_filter=hangs", "--timeout", "600"});
  const auto ranks = [this] {
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const bool ours =
          testing_programs::content_of(entry.path() / "cmdline").find("--serve-worker") != std::string::npos &&
          testing_programs::content_of(entry.path() / "environ").find(folder_.string()) != std::string::npos;
      if (ours && testing_programs::content_of(entry.path() / "stat").find(") Z ") == std::string::npos) ++found;
    }
    return found;
  };
  const auto wait_for = [&](int wanted) {
    for (const double until_s = now_s() + 30; ranks() != wanted && now_s() < until_s;)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return ranks();
  };
  for (const auto& [sent, exit_code] : {std::pair{SIGKILL, -SIGKILL}, std::pair{SIGINT, 130}}) {
    const pid_t run = start(arguments);
    ASSERT_EQ(wait_for(2), 2);
    kill(-run, sent);
    EXPECT_EQ(finish(run).exit_code, exit_code);
    EXPECT_EQ(wait_for(0), 0) << "after signal " << sent;
  }
}

TEST_F(Program, TheWorkersOfAllArmsStartBeforeTheFirstIsMade) {
  const auto log = folder_ / "log";
  const auto arguments = measure_arguments(modules({"script_starts"}), {});
  EXPECT_EQ(run(arguments, {{"GPULIFT_TESTING_LOG", log.string()}}).exit_code, 0);
  EXPECT_EQ(testing_programs::content_of(log), "loaded\nloaded\nloaded\nmade one\nmade other\n");
  const Json arms = record_of("script_starts").at("arms");
  EXPECT_EQ(arms[0].at("outcome"), "ok");
  EXPECT_EQ(arms[1].at("outcome"), "ok");
  EXPECT_EQ(arms[2].at("reason"), "the Python package gpulift_that_does_not_exist is not installed");
  EXPECT_EQ(arms[3].at("reason"), "the library libgpulift_that_does_not_exist.so.1 is not installed");
  EXPECT_THAT(arms[3].at("remedy").get<std::string>(),
              StartsWith("install the package that has libgpulift_that_does_not_exist.so.1"));
}

TEST_F(Program, RanksInPythonFindTheirPlaceAndEachOther) {
  EXPECT_EQ(measure(modules({"script_ranks"}), {"--timeout", "20"}).exit_code, 1);
  std::map<std::string, Json> by_manner;
  for (const Json& record : records()) by_manner[record.at("case").at("rank_1")] = record;
  ASSERT_EQ(by_manner.size(), 3U);
  ASSERT_EQ(by_manner.at("fine").at("outcome"), "ok") << by_manner.at("fine").value("reason", "");
  const Json& arm = by_manner.at("fine").at("arms")[1];
  EXPECT_EQ(arm.at("ranks"), 2);
  EXPECT_EQ(arm.at("cost").at("items"), 8);
  EXPECT_EQ(arm.at("environment").at("OMP_NUM_THREADS"), "1");
  EXPECT_THAT(by_manner.at("raises").value("reason", ""),
              AllOf(StartsWith("rank 1 of arm pair: ValueError"), HasSubstr("in its tenth step")));
  EXPECT_THAT(by_manner.at("port").value("reason", ""),
              AllOf(StartsWith("rank 0 of arm pair: OSError"), HasSubstr("in use")));
}

// Ranks that a launcher started, each on a node of its own: relay.py stands for the second.

class GivenRanks : public Program {
 protected:
  /// Measures the technique's case of this manner. The clock of the second rank is known to so much of each window.
  Result measure_given(const std::string& rank_1, double clock_error, int ranks = 2) const {
    const auto chosen = modules({"script_ranks"});
    const std::string relay = GPULIFT_SOURCE_FOLDER "/core/host/testing/relay.py";
    Json given{{"relay", {GPULIFT_PYTHON_EXECUTABLE, relay, chosen.string(), std::to_string(clock_error)}},
               {"address", "127.0.0.1"},
               {"environment", Json::object()},
               {"facts", {{"launcher", "slurm"}, {"ranks", ranks}, {"nodes", ranks}}}};
    for (int rank = 0; rank < ranks; ++rank)
      given["places"].push_back({{"node", rank}, {"local_rank", 0}, {"local_ranks", 1}, {"gpu", nullptr}});
    const auto file = folder_ / "given.json";
    std::ofstream(file) << given;
    return measure(chosen, {"--given-ranks", file.string(), "--benchmark_filter=rank_1:" + rank_1, "--timeout", "20"});
  }
};

TEST_F(GivenRanks, AreMeasuredThroughWhatStandsForThem) {
  const Result result = measure_given("fine", 0.001);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json record = record_of("script_ranks");
  ASSERT_EQ(record.at("outcome"), "ok") << record.value("reason", "");
  EXPECT_EQ(record.at("context").at("ranks").at("launcher"), "slurm");
  const Json& pair = record.at("arms")[1];
  EXPECT_EQ(pair.at("ranks"), 2);
  EXPECT_GT(pair.at("metrics").at("clock_error_s").get<double>(), 0);
  EXPECT_FALSE(record.at("arms")[0].contains("metrics")) << "one rank has one clock";
}

TEST_F(GivenRanks, AreNamedWithTheirNodes) {
  EXPECT_EQ(measure_given("raises", 0.001).exit_code, 1);
  EXPECT_THAT(record_of("script_ranks").at("reason").get<std::string>(),
              StartsWith("rank 1 (node 1) of arm pair: ValueError: in its tenth step, of (address)"));
}

TEST_F(GivenRanks, WhoseClocksAreNotKnownWellEnoughFail) {
  EXPECT_EQ(measure_given("fine", 0.02).exit_code, 1);
  const Json record = record_of("script_ranks");
  EXPECT_EQ(record.at("outcome"), "failed");
  EXPECT_THAT(record.at("reason").get<std::string>(),
              AllOf(StartsWith("arm pair: the clocks of its hosts are known to"), HasSubstr("more than 1 %")));
}

TEST_F(GivenRanks, AsManyAsTheArmHasOrItIsSkipped) {
  EXPECT_EQ(measure_given("fine", 0, 3).exit_code, 0);
  EXPECT_EQ(record_of("script_ranks").at("arms")[1].at("reason"), "it has 2 ranks, and 3 were given");
}

// Values that arms give are held against each other.

TEST_F(Program, ValuesOfArmsAreHeldAgainstEachOther) {
  EXPECT_EQ(measure(modules({"script_values"})).exit_code, 1);
  std::map<std::string, Json> by_kind;
  for (const Json& record : records()) by_kind[record.at("case").at("gives")] = record;
  ASSERT_EQ(by_kind.size(), 4U);
  const Json& near = by_kind.at("near");
  ASSERT_EQ(near.at("outcome"), "ok") << near.value("reason", "");
  EXPECT_NEAR(near.at("arms")[1].at("check_error").get<double>(), 0.005, 1e-9);
  EXPECT_EQ(by_kind.at("far").at("outcome"), "failed");
  EXPECT_THAT(by_kind.at("far").value("reason", ""), HasSubstr("arm other does not give the same result"));
  EXPECT_EQ(by_kind.at("nan").at("outcome"), "failed");
  const Json& nothing = by_kind.at("nothing");
  ASSERT_EQ(nothing.at("outcome"), "ok") << nothing.value("reason", "");
  for (const Json& arm : nothing.at("arms")) EXPECT_EQ(arm.at("checked"), false);
}

// Work around the windows.

TEST_F(Program, EachWindowBeginsInTheStateThatItsArmMakes) {
  EXPECT_EQ(measure_what("host", {"cold", "cold_untold", "worker_cold", "worker_cold_untold"}).exit_code, 0);
  ASSERT_EQ(records().size(), 4U);
  for (const Json& record : records()) {
    ASSERT_EQ(record.at("outcome"), "ok") << record.value("reason", "");
    const Json& arm = record.at("arms")[1];
    if (record.at("case").at("does").get<std::string>().ends_with("untold")) {
      EXPECT_EQ(arm.at("outcome"), "skipped");
      EXPECT_EQ(arm.at("reason"), "resident_share cannot be told here");
      continue;
    }
    EXPECT_EQ(arm.at("outcome"), "ok");
    EXPECT_EQ(arm.at("steps_per_window"), 1);
    EXPECT_EQ(arm.at("lead_in_steps"), 0);
    EXPECT_EQ(arm.at("precondition").at("worst"), 0.001);
  }
}

TEST_F(Program, AskedForProofACheckThatAnArmWithoutAStepPassesFailsTheArm) {
  const std::vector<std::string> words{"check_finds_nothing", "worker_check_finds_nothing", "check_needs_a_step"};
  EXPECT_EQ(measure_what("host", words, {"--prove-checks"}).exit_code, 1);
  EXPECT_EQ(record_of("check_needs_a_step").at("outcome"), "ok") << "where it throws, it has found that";
  for (const char* passes : {"check_finds_nothing", "worker_check_finds_nothing"}) {
    EXPECT_EQ(record_of(passes).at("outcome"), "failed");
    EXPECT_THAT(record_of(passes).value("reason", ""),
                HasSubstr("arm baseline passes its check (a number) before it has taken a step"));
  }
}

TEST_F(Program, UnaskedAWeakCheckIsTheTechniquesOwnMatter) {
  EXPECT_EQ(measure_what("host", {"check_finds_nothing", "worker_check_finds_nothing"}).exit_code, 0);
}

TEST_F(Program, AColdArmThatWasNotColdFailed) {
  EXPECT_EQ(
      measure_what("host", {"cold_at_first", "never_cold", "worker_cold_at_first", "worker_never_cold"}).exit_code, 1);
  ASSERT_EQ(records().size(), 4U);
  for (const Json& record : records()) {
    EXPECT_THAT(record.value("reason", ""), HasSubstr("resident_share"));
    EXPECT_EQ(record.at("outcome"), "failed") << "not an error, and not fast";
  }
}

TEST_F(Program, ArmsOfACaseShareAFolderThatGoesWithTheRun) {
  const auto disk = folder_ / "disk";
  std::filesystem::create_directory(disk);
  const Result result = measure_what("host", {"shares_scratch"}, {"--scratch", disk.string()});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json record = record_of("shares_scratch");
  ASSERT_EQ(record.at("outcome"), "ok") << record.value("reason", "");
  EXPECT_EQ(record.at("context").at("versions").at("ink"), "1.2");
  EXPECT_TRUE(record.at("context").at("scratch").contains("in_memory"));
  EXPECT_EQ(record.dump().find(disk.string()), std::string::npos) << "no path in a record";
  EXPECT_TRUE(std::filesystem::is_empty(disk));
}

TEST_F(Program, AFolderThatCannotServeIsWrongUsage) {
  const Result result = measure_what("host", {"shares_scratch"}, {"--scratch", (folder_ / "missing").string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(lines_of(result.errors), ElementsAre(HasSubstr("--scratch")));
  EXPECT_THAT(records(), IsEmpty());
}

TEST_F(Program, AFolderForTemporaryFilesThatCannotServeIsNamedBeforeAnythingIsMeasured) {
  const auto none = (folder_ / "none").string();
  const Result result = run(measure_arguments(modules({"fine"}), {}), {{"TMPDIR", none}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(lines_of(result.errors), ElementsAre(StartsWith("gpulift-bench: TMPDIR: the folder for temporary files "
                                                              "does not exist (" +
                                                              none)));
  EXPECT_FALSE(std::filesystem::exists(records_folder()));
}

TEST_F(Program, TellsTheIndicesOfGpus) {
  const Result result = run({"--gpus", "1,0", "--gpu-indices"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "[1,0]\n");
  EXPECT_EQ(run({"--gpu", "MIG-1", "--describe"}).exit_code, 2);
}

TEST_F(Program, AWrapperStandsInFrontOfTheWorker) {
  EXPECT_EQ(measure_what("host", {"worker_is_niced", "worker_lacks_wrapper"}).exit_code, 0);
  const Json niced = record_of("worker_is_niced").at("arms")[1];
  EXPECT_EQ(niced.at("outcome"), "ok") << niced.value("reason", "");
  const Json missing = record_of("worker_lacks_wrapper");
  ASSERT_EQ(missing.at("outcome"), "ok") << missing.value("reason", "");
  EXPECT_EQ(missing.at("arms")[1].at("outcome"), "skipped");
  EXPECT_THAT(missing.at("arms")[1].at("reason").get<std::string>(), StartsWith("gpulift_no_such_program cannot be"));
  EXPECT_EQ(missing.at("arms")[1].at("remedy"), "install it");
}

// Techniques from elsewhere.

TEST_F(Program, AFolderOfAUsersOwnIsMeasuredBesideTheOthers) {
  std::filesystem::path outside;
  for (const auto& entry : std::filesystem::directory_iterator(build() / "techniques")) {
    if (entry.path().filename().string().starts_with("outside-")) outside = entry.path();
  }
  const Result result = measure(modules({"fine"}), {"--more-modules", outside.string(), "--quick"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  std::set<std::string> ids;
  for (const Json& record : records()) {
    ids.insert(record.at("technique"));
    const std::string file = record.at("technique") == "testing/fine" ? "fine.cpp" : "square.cpp";
    EXPECT_TRUE(record.at("source").contains(file)) << "tells one version of its file from another";
  }
  EXPECT_THAT(ids, ElementsAre("outside/square", "testing/fine"));
}

// Arms by name.

// A filter that names an arm measures it and the baseline alone.
TEST_F(Program, ARunGoesOnWithArmsThatItDidNotHave) {
  const auto folder = modules({"processes"});
  EXPECT_EQ(measure(folder, {"--benchmark_filter=/baseline$"}).exit_code, 0);
  EXPECT_EQ(measure(folder, {"--benchmark_filter=/other$"}).exit_code, 0);
  EXPECT_EQ(measure(folder, {"--benchmark_filter=/baseline$"}).exit_code, 0) << "there already";
  const auto all = records();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(all[0].at("arms"), SizeIs(1));
  EXPECT_THAT(all[1].at("arms"), SizeIs(2)) << "the later record counts, and has both";
}

TEST_F(Program, MoreGpusThanThereAreIsASkipThatSaysSo) {
  const Result result = measure(modules({"needs_gpus"}), {"--benchmark_filter=gpus:(64|128)"});
  for (const Json& record : records()) {
    EXPECT_EQ(record.at("outcome"), "skipped");
    EXPECT_FALSE(record.value("reason", "").empty());
  }
  EXPECT_EQ(records().size(), 2U) << result.errors;
  EXPECT_EQ(result.exit_code, 77);
}

TEST_F(Program, ACaseThatCrashedIsNotTriedAgainInTheSameRun) {
  EXPECT_EQ(measure(modules({"host", "fine"}), {"--quick", "--launches", "2", does({"crashes"}) + "|^testing/fine"})
                .exit_code,
            1);
  EXPECT_EQ(record_of("crashes").at("launch"), 0);
  EXPECT_EQ(records().size(), 3U);
}

TEST_F(Program, ACaseWhoseFirstLaunchEndsInAnErrorHasNoOther) {
  const Result result =
      measure(modules({"script", "fine"}), {"--quick", "--launches", "3", does({"raises"}) + "|^testing/fine"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(record_of("raises").at("launch"), 0);
  EXPECT_EQ(records().size(), 1U + 3U) << result.errors;  // the other case has all of its launches
}

TEST_F(Program, AFailedCheckEndsNoOtherLaunch) {
  EXPECT_EQ(measure(modules({"script"}), {"--quick", "--launches", "2", does({"gives_no_number"})}).exit_code, 1);
  EXPECT_EQ(records().size(), 2U);
}

TEST_F(Program, AMissingPreloadSkipsItsArmAlone) {
  const Result result = measure_what("host", {"worker_lacks_preload"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json arms = record_of("worker_lacks_preload").at("arms");
  EXPECT_EQ(arms[0].at("outcome"), "ok");
  EXPECT_EQ(arms[1].at("outcome"), "skipped");
  EXPECT_THAT(arms[1].at("reason").get<std::string>(),
              HasSubstr("libgpulift_that_does_not_exist.so.1 is not installed"));
  EXPECT_EQ(arms[1].at("remedy"), "install it");
}

// The question that a worker arm's library is tried with.
TEST_F(Program, APreloadIsFoundByItsFileNameAndByItsPath) {
  const auto library = build() / "testing-odd" / "testing_no_module.so";
  std::filesystem::create_symlink(library, folder_ / "link.so");
  std::filesystem::copy_file(library, folder_ / "testing_no_module.so");
  const auto answer = [&](const std::string& asked, const std::string& preloaded) {
    // A sanitized build otherwise insists on being the first library.
    return run({"--is-preloaded", asked}, {{"LD_PRELOAD", preloaded}, {"ASAN_OPTIONS", "verify_asan_link_order=0"}})
        .exit_code;
  };
  EXPECT_EQ(answer(library, library), 0);
  EXPECT_EQ(answer("testing_no_module.so", library), 0);
  EXPECT_EQ(answer(folder_ / "link.so", folder_ / "link.so"), 0);
  EXPECT_EQ(answer(library, folder_ / "link.so"), 0) << "the same file under another name";
  EXPECT_EQ(answer(folder_ / "testing_no_module.so", library), 1) << "another file of the same name";
  EXPECT_EQ(answer(library, ""), 1);
  EXPECT_EQ(answer(folder_ / "missing.so", folder_ / "missing.so"), 1);
}

TEST_F(Program, WhatAWorkerPrintsOnItsPipeIsShownWithItsArm) {
  EXPECT_EQ(measure_what("script", {"answers_no_json", "answers_no_window"}).exit_code, 1);
  ASSERT_EQ(records().size(), 2U);
  for (const Json& record : records()) {
    const bool no_json = record.at("case_id") == "does:answers_no_json";
    EXPECT_EQ(record.at("outcome"), "error");
    EXPECT_THAT(
        record.at("reason").get<std::string>(),
        AllOf(StartsWith("the worker of arm "), HasSubstr(no_json ? "answered what is no JSON object: rubbish"
                                                                  : "answered what is no window: {\"rubbish\":1}")));
  }
}

TEST_F(Program, AnUnsupportedArmIsSkippedAndTheOthersAreMeasured) {
  EXPECT_EQ(measure_what("host", {"is_unsupported"}).exit_code, 0);
  const Json record = record_of("is_unsupported");
  EXPECT_EQ(record.at("arms")[0].at("outcome"), "ok");
  EXPECT_EQ(record.at("arms")[1].at("outcome"), "skipped");
  EXPECT_EQ(record.at("arms")[1].at("reason"), "no such type here");
}

TEST_F(Program, AnArmThatDoesNotFitIsSkippedAndTheOthersAreMeasured) {
  EXPECT_EQ(measure_what("host", {"other_fits_not"}).exit_code, 0);
  const Json record = record_of("other_fits_not");
  EXPECT_EQ(record.at("outcome"), "ok");
  EXPECT_FALSE(record.at("arms")[0].at("windows").at("host_s").empty());
  EXPECT_EQ(record.at("arms")[1].at("outcome"), "skipped");
  EXPECT_EQ(record.at("arms")[1].at("reason"), "out of memory: asked for too much");
  EXPECT_FALSE(record.at("arms")[1].at("remedy").get<std::string>().empty());
}

TEST_F(Program, ABaselineThatDoesNotFitSkipsItsCase) {
  EXPECT_EQ(measure_what("host", {"baseline_fits_not"}).exit_code, 77);
  const Json record = record_of("baseline_fits_not");
  EXPECT_EQ(record.at("outcome"), "skipped");
  EXPECT_EQ(record.at("reason"), "the baseline cannot run: out of memory: asked for too much");
  EXPECT_FALSE(record.at("remedy").get<std::string>().empty());
}

TEST_F(Program, AWorkerIsMeasuredInItsOwnEnvironment) {
  const Result result = measure_what("host", {"worker_has_environment"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json arm = record_of("worker_has_environment").at("arms")[1];
  EXPECT_EQ(arm.at("outcome"), "ok");
  EXPECT_EQ(arm.at("clock"), "host");
  EXPECT_FALSE(arm.at("windows").at("host_s").empty());
  EXPECT_TRUE(arm.contains("peak_host_bytes"));
}

TEST_F(Program, APythonArmIsMeasuredLikeAnyOtherWhateverItPrints) {
  const Result result = measure(modules({"processes"}));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, Not(HasSubstr("said")));
  const Json record = record_of("processes");
  EXPECT_EQ(record.at("notes").at("arm"), "python");
  EXPECT_EQ(record.at("notes").at("seed"), std::to_string(record.at("order").at("seed").get<std::uint64_t>()));
  EXPECT_THAT(record.at("context").at("versions").at("python").get<std::string>(), StartsWith("3."));
  const Json arm = record.at("arms")[2];
  EXPECT_EQ(arm.at("clock"), "host");
  EXPECT_EQ(arm.at("check_error"), 0);
  EXPECT_TRUE(arm.contains("peak_host_bytes"));
}

TEST_F(Program, EventsJudgeWhereAllArmsHaveThemElseTheWallClock) {
  ASSERT_EQ(measure_what("script", {"has_events", "has_events_in_one_arm"}).exit_code, 0);
  ASSERT_EQ(records().size(), 2);
  for (const Json& record : records()) {
    const char* clock = record.at("case_id") == "does:has_events" ? "device" : "host";
    for (const Json& arm : record.at("arms")) EXPECT_EQ(arm.at("clock"), clock) << record.at("case_id");
    EXPECT_FALSE(record.at("arms")[0].at("windows").at("device_s").empty()) << "recorded in any case";
  }
}

// The C++ baseline starts the first block or the second: windows of both arms lie on one time axis, and never overlap.
TEST_F(Program, APythonArmsWindowsAreOnTheEnginesClock) {
  ASSERT_EQ(measure(modules({"processes"})).exit_code, 0);
  std::vector<std::pair<double, double>> windows;
  const Json record = record_of("processes");
  for (const Json& arm : record.at("arms")) {
    const Json& times = arm.at("windows");
    for (std::size_t i = 0; i < times.at("start_s").size(); ++i) {
      const double start_s = times.at("start_s")[i];
      windows.emplace_back(start_s, start_s + times.at("host_s")[i].get<double>());
    }
  }
  std::sort(windows.begin(), windows.end());
  constexpr double kRounding_s = 2e-9;
  for (std::size_t i = 1; i < windows.size(); ++i) EXPECT_LE(windows[i - 1].second, windows[i].first + kRounding_s);
}

TEST_F(Program, WithoutAnInterpreterItsArmAloneIsSkipped) {
  const auto none = (folder_ / "no-python").string();
  EXPECT_EQ(measure(modules({"processes"}), {"--python", none}).exit_code, 0);
  const Json arm = record_of("processes").at("arms")[2];
  EXPECT_EQ(arm.at("outcome"), "skipped");
  EXPECT_EQ(arm.at("reason"), "the Python interpreter cannot be started: No such file or directory");
  EXPECT_THAT(arm.at("remedy").get<std::string>(), HasSubstr("--python"));
}

TEST_F(Program, TheInterpreterIsThatOfTheSetUpUnlessOneIsNamed) {
  const auto folder = modules({"processes"});
  const std::map<std::string, std::string> environment{{"GPULIFT_SETUP_PYTHON", (folder_ / "no-python").string()}};
  EXPECT_EQ(run(measure_arguments(folder, {}), environment).exit_code, 0);
  EXPECT_EQ(record_of("processes").at("arms")[2].at("outcome"), "skipped");
}

TEST_F(Program, WhereNothingCanRunTheExitCodeSaysSo) {
  const Result result =
      run(measure_arguments(modules({"needs_gpus"}), {"--benchmark_filter=gpus:1$"}), {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(result.exit_code, 77);
  const Json record = record_of("needs_gpus");
  EXPECT_EQ(record.at("outcome"), "skipped");
  EXPECT_FALSE(record.at("reason").get<std::string>().empty());
  EXPECT_FALSE(record.at("remedy").get<std::string>().empty());
  EXPECT_THAT(result.errors, HasSubstr("No GPU: "));
}

// Modules that are none.

class OddModule : public Program, public testing::WithParamInterface<std::pair<std::string, std::string>> {};

TEST_P(OddModule, IsAnErrorOfItsOwnCases) {
  const auto& [file, expected] = GetParam();
  const auto folder = modules({"fine", "ranks"});
  std::filesystem::remove(folder / "testing.ranks.so");
  std::filesystem::path odd = build() / "testing-odd" / file;
  if (file == "text") {
    odd = folder_ / "text";
    std::ofstream(odd) << "no library\n";
  }
  if (file != "missing") std::filesystem::create_symlink(odd, folder / "testing.ranks.so");
  const Result result = measure(folder, {"--quick"});
  EXPECT_EQ(result.exit_code, 1);
  const Json record = record_of("ranks");
  EXPECT_EQ(record.at("outcome"), "error");
  EXPECT_THAT(record.at("reason").get<std::string>(), AllOf(HasSubstr("testing.ranks.so"), HasSubstr(expected)));
  EXPECT_THAT(record.at("reason").get<std::string>(), Not(HasSubstr(folder_.string())));
  EXPECT_EQ(record_of("fine").at("outcome"), "ok");
}

INSTANTIATE_TEST_SUITE_P(Files, OddModule,
                         testing::Values(std::pair("testing_other_tag.so", "built against other headers"),
                                         std::pair("testing_no_module.so", "no gpulift module"),
                                         std::pair("text", "is no module"), std::pair("missing", "is no module")));

TEST_F(Program, ABrokenManifestIsWrongUsage) {
  const auto folder = modules({"fine"});
  std::ofstream(folder / "testing.broken.json") << "{\"id\": ";
  const Result result = measure(folder);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(lines_of(result.errors), ElementsAre(AllOf(HasSubstr("testing.broken.json"), HasSubstr("build again"))));
}

// Disks, and runs that were broken off.

TEST_F(Program, AFolderForRecordsThatCannotBeMadeIsSaidBeforeAnythingRuns) {
  std::ofstream(records_folder()) << "a file in the way";
  const Result result = run(measure_arguments(modules({"fine"}), {}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, HasSubstr("cannot create the folder"));
}

TEST_F(Program, AFullDiskKeepsWhatWasMeasuredAndSaysSo) {
  const auto arguments = measure_arguments(modules({"fine"}), {"--quick", "--launches", "2"});
  ASSERT_EQ(run(arguments).exit_code, 0);
  const auto file = records_folder() / "testing.fine.jsonl";
  const std::string both = testing_programs::content_of(file);
  const std::string before = both.substr(0, both.find('\n') + 1);
  std::filesystem::resize_file(file, before.size());
  file_limit_bytes_ = before.size() + 500;
  const Result full = run(arguments);
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.errors, AllOf(HasSubstr("cannot write testing.fine.jsonl"), HasSubstr("run again to go on")));
  EXPECT_EQ(testing_programs::content_of(file), before);
  file_limit_bytes_ = 0;
  EXPECT_EQ(run(arguments).exit_code, 0);
  EXPECT_EQ(records().size(), 2U);
}

TEST_F(Program, AFullDiskUnderGoogleBenchmarksFileIsAnErrorAndTheRecordsAreKept) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  const Result result = measure(modules({"fine"}), {"--quick", "--benchmark_out=/dev/full"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(lines_of(result.errors),
              Contains(AllOf(StartsWith("gpulift-bench: cannot write /dev/full"), HasSubstr("No space left"))));
  EXPECT_EQ(record_of("fine").at("outcome"), "ok");
}

class PrintedToAFullDisk : public Program, public testing::WithParamInterface<const char*> {};

TEST_P(PrintedToAFullDisk, IsAnError) {
  file_limit_bytes_ = 200;  // of each file: enough for the message, too little for what is printed
  const Result result = run({GetParam(), "--modules", modules({"fine"}).string()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(lines_of(result.errors), ElementsAre(StartsWith("gpulift-bench: cannot write to the standard output")));
}

INSTANTIATE_TEST_SUITE_P(Outputs, PrintedToAFullDisk,
                         testing::Values("--describe", "--catalogue", "--help", "--benchmark_list_tests"));

TEST_F(Program, ResultsOfANewerSchemaAreRefused) {
  std::filesystem::create_directory(records_folder());
  std::ofstream(records_folder() / "testing.fine.jsonl") << "{\"schema\":\"2.0\"}\n";
  const Result result = run(measure_arguments(modules({"fine"}), {}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, HasSubstr("schema 2.0 is newer"));
}

TEST_F(Program, ATruncatedLastLineIsMeasuredAgain) {
  const auto arguments = measure_arguments(modules({"fine"}), {});
  ASSERT_EQ(run(arguments).exit_code, 0);
  const auto file = records_folder() / "testing.fine.jsonl";
  const std::string whole = testing_programs::content_of(file);
  std::filesystem::resize_file(file, whole.size() - 100);
  const Result result = run(arguments);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.errors,
              AllOf(HasSubstr("dropped its last line"), HasSubstr("Going on with a run of which 1 records")));
  EXPECT_EQ(records().size(), 2U);
}

/// A folder of records in which something is not as this run would have made it.
class ResumedRun : public Program {
 protected:
  ResumedRun() : arguments_(measure_arguments(modules({"fine"}), {"--quick"})) {}

  /// Measures once, changes the record, and runs again.
  Result run_after(const std::function<void(Json&)>& change) const {
    EXPECT_EQ(run(arguments_).exit_code, 0);
    Json record = record_of("fine");
    change(record);
    std::ofstream(records_folder() / "testing.fine.jsonl") << record.dump() << '\n';
    return run(arguments_);
  }

  std::vector<std::string> arguments_;
};

TEST_F(ResumedRun, OfAnotherBuildIsRefused) {
  const Result result = run_after([](Json& record) { record["context"]["build"]["commit"] = "other"; });
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(lines_of(result.errors), Contains(AllOf(HasSubstr("commit other"), HasSubstr("name another folder"))));
  EXPECT_EQ(records().size(), 1U);
}

TEST_F(ResumedRun, WithOtherSettingsIsWrongUsage) {
  const Result result = run_after([](Json& record) { record["context"]["options"]["seed"] = 99; });
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(lines_of(result.errors), Contains(AllOf(HasSubstr("--seed 99"), HasSubstr("name another folder"))));
  EXPECT_EQ(records().size(), 1U);
}

TEST_F(ResumedRun, MeasuresAnErrorAgainAndTheLaterRecordCounts) {
  const Result result = run_after([](Json& record) {
    record.erase("arms");
    record["outcome"] = "error";
    record["reason"] = "the process that measured it ended with signal 11";
  });
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const auto both = records();
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].at("outcome"), "error");
  EXPECT_EQ(both[1].at("outcome"), "ok");
  EXPECT_EQ(both[1].at("launch"), both[0].at("launch"));
}

TEST_F(ResumedRun, DoesNotMeasureAFailureAgain) {
  const Result result = run_after([](Json& record) {
    record["outcome"] = "failed";
    record["reason"] = "the arms disagree";
  });
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(records().size(), 1U);
}

TEST_F(Program, AFinishedRunIsGoneOnWithForMoreLaunches) {
  const auto with_launches = [&](const char* count) { return measure(modules({"fine"}), {"--launches", count}); };
  ASSERT_EQ(with_launches("1").exit_code, 0);
  const auto first = records();
  ASSERT_EQ(with_launches("3").exit_code, 0);
  const auto all = records();
  ASSERT_EQ(all.size(), 3 * first.size());
  std::map<std::string, std::set<int>> launches;
  for (const Json& record : all) launches[record.at("case_id")].insert(record.at("launch").get<int>());
  for (const auto& [name, seen] : launches) EXPECT_EQ(seen, (std::set<int>{0, 1, 2})) << name;
}

TEST_F(Program, AnArmHearsOfItsLaunchAndAnEarlierOneAndSharesAFolderAlsoInARunThatIsGoneOnWith) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no shared memory";
  for (const char* launches : {"2", "3"})
    EXPECT_EQ(measure(modules({"script_launches"}), {"--launches", launches}).exit_code, 0);
  const auto all = records();
  ASSERT_EQ(all.size(), 3U);
  std::set<std::string> folders;
  for (const Json& record : all) {
    for (const Json& arm : record.at("arms")) {
      const Json& told = arm.at("metrics");
      const int launch = record.at("launch");
      EXPECT_EQ(told.at("launch"), launch + 1);
      EXPECT_EQ(told.at("check_seed"), all[0].at("order").at("seed"));
      EXPECT_EQ(told.at("seed"), record.at("order").at("seed"));
      EXPECT_EQ(told.at("found"), 2) << "of this launch, beside the mark of its owner";
      EXPECT_EQ(told.at("earlier_launch"), launch == 0 ? -1 : 1);
      EXPECT_EQ(told.at("earlier_seed"), launch == 0 ? Json(-1) : all[0].at("order").at("seed"));
    }
    const auto& notes = record.at("notes");
    EXPECT_EQ(notes.at("writes_folder"), notes.at("reads_folder"));
    EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + notes.at("reads_folder").get<std::string>()));
    folders.insert(notes.at("reads_folder").get<std::string>());
  }
  EXPECT_EQ(folders.size(), 3U);
}

TEST_F(Program, ArmsThatRestAreVisitedTwiceAndWokenThreeTimes) {
  const auto log = folder_ / "log";
  const auto arguments = measure_arguments(modules({"script_rests"}), {"--launches", "1"});
  EXPECT_EQ(run(arguments, {{"GPULIFT_TESTING_LOG", log.string()}}).exit_code, 0);
  const Json record = record_of("script_rests");
  ASSERT_EQ(record.at("outcome"), "ok") << record.value("reason", "");
  const Json visits = record.at("order").at("visits");
  EXPECT_THAT(visits, AnyOf(Json({0, 1, 1, 0}), Json({1, 0, 0, 1})));
  EXPECT_EQ(record.at("order").at("blocks"), Json(4, visits)) << "of long steps";
  for (const Json& arm : record.at("arms")) EXPECT_EQ(arm.at("windows").at("host_s").size(), 8U);
  EXPECT_GE(record.at("time_s").at("wake"), 2 * 3 * 0.02);
  // Each ahead of its check, for calibration, and for the visits.
  std::map<std::string, int> wakes;
  std::stringstream lines(testing_programs::content_of(log));
  for (std::string arm; lines >> arm;) ++wakes[arm];
  EXPECT_EQ(wakes, (std::map<std::string, int>{{"fast", 4}, {"slow", 4}}));
}

TEST_F(Program, AFinishedRunIsNotMeasuredAgain) {
  const auto arguments = measure_arguments(modules({"fine"}), {});
  ASSERT_EQ(run(arguments).exit_code, 0);
  const auto before = records();
  EXPECT_EQ(run(arguments).exit_code, 0);
  EXPECT_EQ(records(), before);
}

class BrokenOff : public Program {
 protected:
  /// Starts a long run and waits until it has kept a few records.
  pid_t start_and_wait(const std::vector<std::string>& arguments) {
    const pid_t child = start(arguments);
    const auto file = records_folder() / "testing.fine.jsonl";
    for (int i = 0; i < 1000 && lines_of(testing_programs::content_of(file)).size() < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return child;
  }

  void expect_each_once(int launches) {
    std::set<std::pair<std::string, int>> seen;
    for (const Json& record : records()) {
      EXPECT_TRUE(seen.emplace(record.at("case_id"), record.at("launch")).second) << record.at("case_id");
    }
    EXPECT_EQ(seen.size(), 2U * static_cast<std::size_t>(launches));
  }

  /// A process that was just being started shows no environment for a moment: only several looks in a row tell.
  bool ends_for_good() const {
    int quiet = 0;
    for (int i = 0; i < 500 && quiet < 10; ++i) {
      quiet = anything_left() ? 0 : quiet + 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return quiet == 10;
  }

  /// Processes that work in our folder.
  bool anything_left() const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string pid = entry.path().filename();
      if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
      if (testing_programs::content_of(entry.path() / "environ").find(folder_.string()) != std::string::npos)
        return true;
    }
    return false;
  }
};

TEST_F(BrokenOff, ByKill9LosesAtMostTheCaseInHandAndGoesOn) {
  const auto arguments = measure_arguments(modules({"fine"}), {"--launches", "4"});
  const pid_t child = start_and_wait(arguments);
  kill(child, SIGKILL);
  EXPECT_EQ(finish(child).exit_code, -SIGKILL);
  EXPECT_TRUE(ends_for_good()) << "its child process went on";
  EXPECT_GE(records().size(), 2U);
  const Result resumed = run(arguments);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.errors;
  expect_each_once(4);
}

TEST_F(BrokenOff, ByCtrlCKeepsEveryFinishedCase) {
  const auto arguments = measure_arguments(modules({"fine"}), {"--launches", "4"});
  const pid_t child = start_and_wait(arguments);
  kill(-child, SIGINT);  // as a terminal does, to the whole group
  const Result result = finish(child);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.errors, HasSubstr("Interrupted: "));
  EXPECT_GE(records().size(), 2U);
  EXPECT_EQ(run(arguments).exit_code, 0);
  expect_each_once(4);
}

TEST_F(BrokenOff, ASecondRunAtTheSameTimeIsRefused) {
  const auto arguments = measure_arguments(modules({"fine"}), {"--launches", "400"});  // till it is killed
  const pid_t first = start_and_wait(arguments);
  const Result second = run(arguments);
  EXPECT_EQ(second.exit_code, 75);
  EXPECT_THAT(second.errors, HasSubstr("in use by gpulift (process " + std::to_string(first)));
  kill(first, SIGKILL);
  finish(first);
}

// Duets.

class Duet : public Program {
 protected:
  Result duet(const std::string& head, const std::string& base, const std::string& technique, double arm_time_s,
              const std::vector<std::string>& more = {}) {
    const auto folder = build() / "testing-duet";
    std::vector<std::string> arguments{"--head",
                                       (folder / head).string(),
                                       "--base",
                                       (folder / base).string(),
                                       "--records",
                                       records_folder().string(),
                                       "--launches",
                                       "2",
                                       "--arm-time",
                                       std::to_string(arm_time_s),
                                       "--benchmark_filter=" + technique + "/other"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  /// An interpreter that runs lines of shell first.
  std::string python_after(const std::string& name, const std::string& lines) {
    const auto file = folder_ / (name + "-python");
    std::ofstream(file) << "#!/bin/sh\n" << lines << "\nexec " << GPULIFT_PYTHON_EXECUTABLE << " \"$@\"\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file.string();
  }

  /// Head over base by time, from the medians of both launches.
  double ratio() {
    double log_ratio = 0;
    for (const Json& record : records()) {
      std::vector<double> step_s;
      for (const Json& arm : record.at("arms")) step_s.push_back(median_step_s(arm));
      log_ratio += std::log(step_s[1] / step_s[0]) / 2;
    }
    return std::exp(log_ratio);
  }
};

// Its base is loaded from a copy, which had the loader ask to build it again.
TEST_F(Duet, NeedsAFolderForTemporaryFilesThatLibrariesCanBeLoadedFrom) {
  const auto said = said_on_mount(folder_ / "tmp", "", MS_NOEXEC, [&] {
    const Result result = duet("base_again", "base", "planted_host", 0.01);
    return std::to_string(result.exit_code) + " " + result.errors;
  });
  if (!said) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_THAT(*said, AllOf(StartsWith("2 gpulift-bench: TMPDIR: "), HasSubstr("noexec"),
                           EndsWith("name another one in TMPDIR\n")));
  EXPECT_FALSE(std::filesystem::exists(records_folder()));
}

TEST_F(Duet, OfTwoEqualBuildsIsCloseToOne) {
  const Result result = duet("base_again", "base", "planted_host", 0.05);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  ASSERT_EQ(records().size(), 2U);
  for (const Json& record : records()) {
    EXPECT_EQ(record.at("kind"), "duet");
    EXPECT_EQ(record.at("arm"), "other");
    EXPECT_EQ(record.at("arms")[0].at("name"), "base:other");
    EXPECT_EQ(record.at("arms")[0].at("role"), "baseline");
    EXPECT_EQ(record.at("arms")[1].at("name"), "head:other");
    EXPECT_EQ(record.at("arms")[1].at("role"), "technique");
  }
  EXPECT_NEAR(ratio(), 1, 0.5);  // what a busy machine of two cores allows; sharp figures are for a GPU
}

TEST_F(Duet, APlantedSlowDownIsSaidInTheRecordWithItsMeasuredSize) {
  ASSERT_EQ(duet("base_again", "base", "planted_host", 0.05, {"--plant", "0.5"}).exit_code, 0);
  ASSERT_EQ(records().size(), 2U);
  for (const Json& record : records()) {
    EXPECT_EQ(record.at("context").at("options").at("plant"), 0.5);
    const double planted = std::stod(record.at("notes").at("planted").get<std::string>());
    EXPECT_GT(planted, 0.1);  // on a busy machine a window differs from the one before
  }
  EXPECT_GT(ratio(), 1.1);
}

TEST_F(Duet, TheWorkerOfEachSideLoadsItsOwnBuild) {
  ASSERT_EQ(duet("head", "base", "planted_sides/does:works", 0.05).exit_code, 0);
  EXPECT_GT(ratio(), 2);
}

TEST_F(Duet, AWorkerIsSlowedDownToo) {
  const auto folder = (build() / "testing-modules").string();
  ASSERT_EQ(run({"--head", folder, "--base", folder, "--records", records_folder().string(), "--launches", "1",
                 "--benchmark_filter=does:worker_has_environment/other", "--plant", "0.5", "--arm-time", "0.05"})
                .exit_code,
            0);
  EXPECT_GT(std::stod(record_of("worker_has_environment").at("notes").at("planted").get<std::string>()), 0.1);
}

TEST_F(Duet, EachSideHasItsOwnInterpreter) {
  const std::string python = python_after("slower", "export GPULIFT_TESTING_ROUNDS=6000");
  const auto folder = (build() / "testing-modules").string();
  ASSERT_EQ(run({"--head", folder, "--base", folder, "--records", records_folder().string(), "--launches", "2",
                 "--benchmark_filter=processes/python", "--python", python, "--base-python", GPULIFT_PYTHON_EXECUTABLE,
                 "--arm-time", "0.05"})
                .exit_code,
            0);
  EXPECT_GT(ratio(), 2);
  const Json notes = records().at(0).at("notes");
  EXPECT_EQ(notes.at("base:python"), records().at(0).at("context").at("versions").at("python"));
}

TEST_F(Duet, WhatACompilerLeavesForLaterLaunchesIsOfOneSide) {
  const auto log = folder_ / "log";
  const auto python = [&](const std::string& side) {
    return python_after(
        side, "cd \"${GPULIFT_SCRATCH%/*}\" && ls | grep compiled >> " + log.string() + "\ntouch compiled-" + side);
  };
  const auto folder = (build() / "testing-modules").string();
  ASSERT_EQ(run({"--head", folder, "--base", folder, "--records", records_folder().string(), "--launches", "2",
                 "--benchmark_filter=script_starts/other", "--python", python("head"), "--base-python", python("base"),
                 "--arm-time", "0.01", "--scratch", folder_.string()})
                .exit_code,
            0);
  EXPECT_THAT(lines_of(testing_programs::content_of(log)), UnorderedElementsAre("compiled-base", "compiled-head"))
      << "the second launch finds what its own side left in the first";
}

TEST_F(Duet, TheHeadOfTwoInterpretersRepeatsWhatTheBaseFound) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no shared memory";
  const auto folder = (build() / "testing-modules").string();
  ASSERT_EQ(run({"--head", folder, "--base", folder, "--records", records_folder().string(), "--launches", "2",
                 "--benchmark_filter=script_launches/reads", "--python",
                 python_after("head", "export GPULIFT_TESTING_SIDE=2"), "--base-python",
                 python_after("base", "export GPULIFT_TESTING_SIDE=1"), "--arm-time", "0.01"})
                .exit_code,
            0);
  ASSERT_EQ(records().size(), 2U);
  for (const Json& record : records()) {
    for (const Json& arm : record.at("arms")) {
      EXPECT_EQ(arm.at("metrics").at("earlier_side"), record.at("launch") == 0 ? -1 : 1) << arm.at("name");
    }
  }
}

TEST_F(Duet, TheSideWhoseWorkerIsMadeFirstAlternates) {
  const auto log = folder_ / "log";
  const auto python = [&](const std::string& side) {
    return python_after(side, "export GPULIFT_TESTING_LOG=" + log.string() + " GPULIFT_TESTING_SIDE=" + side);
  };
  const auto folder = (build() / "testing-modules").string();
  ASSERT_EQ(run({"--head", folder, "--base", folder, "--records", records_folder().string(), "--launches", "2",
                 "--benchmark_filter=script_starts/other", "--python", python("head"), "--base-python", python("base"),
                 "--arm-time", "0.01"})
                .exit_code,
            0);
  EXPECT_EQ(testing_programs::content_of(log),
            "loaded\nloaded\nmade base\nmade head\nloaded\nloaded\nmade head\nmade base\n");
  for (const Json& record : records()) {
    const Json first = record.at("launch") == 0 ? Json{0, 1} : Json{1, 0};
    EXPECT_EQ(record.at("order").at("allocation"), first);
  }
}

TEST_F(Duet, APythonArmIsSlowedDownToo) {
  const auto folder = (build() / "testing-modules").string();
  ASSERT_EQ(run({"--head", folder, "--base", folder, "--records", records_folder().string(), "--launches", "1",
                 "--benchmark_filter=processes/python", "--plant", "0.5", "--arm-time", "0.05"})
                .exit_code,
            0);
  EXPECT_NEAR(std::stod(record_of("processes").at("notes").at("planted").get<std::string>()), 0.5, 0.3);
}

TEST_F(Duet, WhatArmsNoteWhileTheyAreMadeIsKeptOfBothSides) {
  ASSERT_EQ(duet("head", "base", "planted_sides/does:notes", 0.01, {"--seed", "0"}).exit_code, 0);
  ASSERT_EQ(records().size(), 2U);
  using Notes = std::map<std::string, std::string>;
  const Notes expected{{"came", "first"}, {"early", "same"},       {"late", "same"},
                       {"permille", "5"}, {"base:came", "second"}, {"base:permille", "0"}};
  for (const Json& record : records()) EXPECT_EQ(record.at("notes").get<Notes>(), expected);
}

TEST_F(Duet, TheSidesChangePlacesEveryTwoLaunchesAndAnotherRunGoesOn) {
  const std::string folder = (build() / "testing-duet").string();
  const auto heads_of_run = [&](const std::string& seed, const std::string& launches) {
    std::filesystem::remove_all(records_folder());
    const Result result =
        run({"--head", folder + "/head", "--base", folder + "/base", "--records", records_folder().string(),
             "--launches", launches, "--seed", seed, "--arm-time", "0.01", "--benchmark_filter=does:notes/other"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    std::map<int, std::string> by_launch;
    for (const Json& record : records()) by_launch[record.at("launch")] = record.at("notes").at("came");
    std::vector<std::string> heads;
    for (const auto& [launch, came] : by_launch) heads.push_back(came);
    return heads;
  };
  EXPECT_THAT(heads_of_run("1000", "4"), ElementsAre("first", "first", "second", "second"));
  EXPECT_THAT(heads_of_run("1000", "2"), ElementsAre("first", "first"));
  EXPECT_THAT(heads_of_run("1002", "2"), ElementsAre("second", "second"));
}

TEST_F(Duet, AReportOfGoogleBenchmarkIsRefusedBeforeAnythingRuns) {
  const auto out = folder_ / "out.json";
  const Result result = duet("base_again", "base", "planted_host", 0.01, {"--benchmark_out=" + out.string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(lines_of(result.errors), ElementsAre(AllOf(HasSubstr("a duet has no"), HasSubstr("--records"))));
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_THAT(records(), IsEmpty());
}

TEST_F(Program, WithoutADuetEveryArmIsSlowedDown) {
  ASSERT_EQ(measure(modules({"fine"}), {"--plant", "0.5"}).exit_code, 0);
  for (const Json& record : records()) EXPECT_TRUE(record.at("notes").contains("planted"));
  EXPECT_FALSE(records().empty());
}

TEST_F(Duet, WithoutTheOtherBuildIsAnError) {
  std::filesystem::create_directory(folder_ / "empty");
  const Result result =
      run({"--head", (build() / "testing-duet" / "head").string(), "--base", (folder_ / "empty").string(), "--records",
           records_folder().string(), "--benchmark_filter=planted_host/other", "--launches", "1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(record_of("planted_host").at("reason").get<std::string>(), HasSubstr("testing.planted_host.so"));
}

}  // namespace
}  // namespace gpulift
