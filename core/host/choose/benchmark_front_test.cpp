#include "benchmark_front.hpp"

#include <gmock/gmock.h>

#include <stdexcept>

namespace gpulift {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TechniqueInfo technique(const std::string& id, const std::vector<std::string>& arms) {
  TechniqueInfo info;
  info.id = id;
  info.arms = arms;
  info.cases = {{"bytes:4", {{"bytes", 4}}, true, "burst"}, {"bytes:8", {{"bytes", 8}}, false, "burst"}};
  return info;
}

std::vector<TechniqueInfo> catalogue() {
  return {technique("launch/graph", {"stream", "graph"}), technique("transfer/copy", {"pageable", "pinned"})};
}

/// "technique/case: arm arm" of each selected case.
std::vector<std::string> selected(const std::string& filter, bool quick = false) {
  const auto all = catalogue();
  std::vector<std::string> texts;
  for (const SelectedCase& one : select_cases(all, filter, quick)) {
    std::string text = full_case_id(one.technique->id, one.info->id) + ":";
    for (const std::string& arm : one.arms) text += " " + arm;
    texts.push_back(text);
  }
  return texts;
}

TEST(SelectCases, NoFilterAndAllAreEverything) {
  EXPECT_THAT(selected(""),
              ElementsAre("launch/graph/bytes:4: stream graph", "launch/graph/bytes:8: stream graph",
                          "transfer/copy/bytes:4: pageable pinned", "transfer/copy/bytes:8: pageable pinned"));
  EXPECT_EQ(selected("all"), selected(""));
}

TEST(SelectCases, AFilterIsSearchedInTheWholeName) {
  EXPECT_THAT(selected("copy"),
              ElementsAre("transfer/copy/bytes:4: pageable pinned", "transfer/copy/bytes:8: pageable pinned"));
  EXPECT_THAT(selected("copy/bytes:4/pinned"), ElementsAre("transfer/copy/bytes:4: pinned"));
  EXPECT_THAT(selected("pinned$"), ElementsAre("transfer/copy/bytes:4: pinned", "transfer/copy/bytes:8: pinned"));
  EXPECT_THAT(selected("^copy"), IsEmpty());
}

TEST(SelectCases, OneThatMatchesTheTechniqueOrTheCaseTakesAllArms) {
  EXPECT_THAT(selected("launch/graph$"),
              ElementsAre("launch/graph/bytes:4: stream graph", "launch/graph/bytes:8: stream graph"));
  EXPECT_THAT(selected("^transfer/copy/bytes:8$"), ElementsAre("transfer/copy/bytes:8: pageable pinned"));
  EXPECT_THAT(selected("-launch/graph$|^transfer/copy/bytes:4$"),
              ElementsAre("transfer/copy/bytes:8: pageable pinned"));
}

TEST(SelectCases, ANameThatGoogleBenchmarkPrintedIsThatArm) {
  auto all = catalogue();
  all[1].arms.emplace_back("pinned_twice");
  const auto found = select_cases(all, "copy/bytes:4/pinned/iterations:1/manual_time", false);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].arms, ElementsAre("pinned"));
  EXPECT_EQ(selected("-bytes:4/pinned/iterations:1/manual_time$"), selected("-bytes:4/pinned$"));
}

TEST(SelectCases, TheDecorationAloneIsInNoName) {
  EXPECT_THAT(selected("manual_time"), IsEmpty());
  EXPECT_THAT(selected("-iterations"), selected(""));
}

TEST(SelectCases, AnExtendedExpressionMayHaveAlternatives) {
  EXPECT_THAT(selected("bytes:8/(graph|pinned)"),
              ElementsAre("launch/graph/bytes:8: graph", "transfer/copy/bytes:8: pinned"));
}

TEST(SelectCases, AMinusTakesWhatDoesNotMatch) {
  EXPECT_THAT(selected("-copy|bytes:8"), ElementsAre("launch/graph/bytes:4: stream graph"));
}

TEST(SelectCases, QuickLeavesOutTheOthers) {
  EXPECT_THAT(selected("copy", true), ElementsAre("transfer/copy/bytes:4: pageable pinned"));
}

std::vector<std::string> measured(std::vector<std::string> matched) {
  TechniqueInfo info = technique("launch/graph", {"stream", "graph", "graph_updated"});
  return measured_arms({&info, &info.cases.front(), std::move(matched)});
}

TEST(MeasuredArms, AreTheBaselineAndThoseThatMatched) {
  EXPECT_THAT(measured({"graph_updated"}), ElementsAre("stream", "graph_updated"));
  EXPECT_THAT(measured({"stream", "graph"}), ElementsAre("stream", "graph"));
  EXPECT_THAT(measured({"stream"}), ElementsAre("stream"));
}

TEST(MeasuredArms, HaveTheBaselineFirstThoughItDidNotMatch) {
  EXPECT_THAT(measured({"graph", "graph_updated"}), ElementsAre("stream", "graph", "graph_updated"));
}

TEST(ReportBenchmarks, ShowsAnArmThatWasNotMeasured) {
  const auto all = catalogue();
  const auto chosen = select_cases(all, "^launch/graph/bytes:4$", false);
  RecordSummary record{.case_name = "launch/graph/bytes:4", .outcome = "ok"};
  record.arms.push_back({.name = "stream", .unmeasured = "", .step_s = 0.5});
  testing::internal::CaptureStdout();
  report_benchmarks(chosen, {record}, {{"build", {{"commit", "abc"}}}});
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_THAT(shown, testing::ContainsRegex("bytes:4/stream/iterations:1/manual_time +500000000 ns"));
  EXPECT_THAT(shown, testing::ContainsRegex("bytes:4/graph/iterations:1/manual_time +ERROR OCCURRED: 'not measured'"));
}

TEST(UnavailableTechniques, AreThoseWhoseIdsMatch) {
  auto all = catalogue();
  for (const char* id : {"model/gpt2", "model/resnet"}) {
    TechniqueInfo info;
    info.id = id;
    info.unavailable = "built without LibTorch";
    all.push_back(info);
  }
  const auto ids = [&](const std::string& filter) {
    std::vector<std::string> found;
    for (const TechniqueInfo* info : unavailable_techniques(all, filter)) found.push_back(info->id);
    return found;
  };
  EXPECT_THAT(ids("^model/"), ElementsAre("model/gpt2", "model/resnet"));
  EXPECT_THAT(ids("resnet$"), ElementsAre("model/resnet"));
  EXPECT_THAT(ids(""), ElementsAre("model/gpt2", "model/resnet"));
  EXPECT_THAT(ids("copy"), IsEmpty()) << "it was built";
}

TEST(SelectCases, ABrokenExpressionIsNamed) {
  const auto all = catalogue();
  EXPECT_THAT([&] { select_cases(all, "(", false); },
              testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("the filter '('")));
}

}  // namespace
}  // namespace gpulift
