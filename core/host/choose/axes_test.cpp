#include "axes.hpp"

#include <gmock/gmock.h>

#include <stdexcept>

namespace gpulift {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

using Points = std::vector<nlohmann::ordered_json>;

TechniqueInfo technique_with(const std::string& id, const Points& points, int gpus = 1) {
  TechniqueInfo info;
  info.id = id;
  info.gpus = gpus;
  info.arms = {"plain", "other"};
  for (const auto& point : points) {
    info.cases.push_back({.id = case_id(point_from_json(point)),
                          .point = point,
                          .quick = info.cases.empty(),
                          .regime = point.value("regime", "burst"),
                          .gpus = gpus_of(gpus, point)});
  }
  return info;
}

TechniqueInfo norm() {
  return technique_with("fusion/norm", {{{"rows", 16}, {"width", 64}}, {{"rows", 32}, {"width", 64}}});
}
TechniqueInfo matmul() {
  return technique_with("precision/matmul", {{{"type", "bf16"}, {"shape", "64x64x64"}, {"regime", "burst"}},
                                             {{"type", "fp16"}, {"shape", "64x64x64"}, {"regime", "sustained"}}});
}
TechniqueInfo not_built() {
  TechniqueInfo info;
  info.id = "model/net";
  info.unavailable = "built without LibTorch";
  return info;
}

std::vector<TechniqueInfo> with(const std::vector<TechniqueInfo>& catalogue, const std::vector<std::string>& texts,
                                const std::string& selected = "") {
  std::vector<AxisValues> axes;
  for (const std::string& text : texts) axes.push_back(parse_axis(text));
  return with_axes(catalogue, axes, [&](const TechniqueInfo& one) { return selected.empty() || one.id == selected; });
}

/// "technique/case" of all, with a star where the sweep has it.
std::vector<std::string> texts_of(const std::vector<TechniqueInfo>& catalogue) {
  std::vector<std::string> texts;
  for (const TechniqueInfo& technique : catalogue) {
    for (const CaseInfo& info : technique.cases)
      texts.push_back(full_case_id(technique.id, info.id) + (info.off_sweep ? "" : "*"));
  }
  return texts;
}

testing::Matcher<std::function<void()>> refuses(const testing::Matcher<const std::string&>& why) {
  return ThrowsMessage<std::invalid_argument>(why);
}

TEST(ParseAxis, TakesANameAndValues) {
  EXPECT_EQ(parse_axis("rows=4096").name, "rows");
  EXPECT_THAT(parse_axis("shape=1x2x3,4x5x6").values, ElementsAre("1x2x3", "4x5x6"));
}

TEST(ParseAxis, RefusesAllElse) {
  for (const char* text : {"", "rows", "rows=", "=4", "rows=4,,5", "rows=4,"})
    EXPECT_THAT([&] { parse_axis(text); }, refuses(HasSubstr("rows=4096,8192"))) << text;
}

TEST(WithAxes, PutsValuesInPlaceOfTheSweepsAndLeavesOtherAxes) {
  EXPECT_THAT(texts_of(with({norm()}, {"rows=1048576,8"})),
              ElementsAre("fusion/norm/rows:1048576/width:64", "fusion/norm/rows:8/width:64"));
  EXPECT_THAT(texts_of(with({norm()}, {"rows=8", "width=2"})), ElementsAre("fusion/norm/rows:8/width:2"));
  EXPECT_THAT(texts_of(with({norm()}, {})),
              ElementsAre("fusion/norm/rows:16/width:64*", "fusion/norm/rows:32/width:64*"));
}

TEST(WithAxes, ACaseOfTheSweepStaysThatCase) {
  const auto found = with({norm()}, {"rows=32,48"});
  EXPECT_THAT(texts_of(found), ElementsAre("fusion/norm/rows:32/width:64*", "fusion/norm/rows:48/width:64"));
  EXPECT_FALSE(found[0].cases[0].quick) << "as in the sweep, though it stands for a quick one, too";
  EXPECT_TRUE(found[0].cases[1].quick) << "it stands for a quick one";
}

TEST(WithAxes, WhatIsListedIsWhatIsMeasured) {
  const auto found = with({norm()}, {"rows=32,48"});
  const auto& listed = found[0].manifest.at("cases");
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_FALSE(listed[0].contains("off_sweep"));
  EXPECT_EQ(listed[1].at("id"), "rows:48/width:64");
  EXPECT_EQ(listed[1].at("point").at("rows"), 48);
  EXPECT_EQ(listed[1].at("off_sweep"), true);
}

TEST(WithAxes, LeavesOutTechniquesWithoutTheAxisAndKeepsThoseThatWereNotBuilt) {
  const auto found = with({norm(), matmul(), not_built()}, {"rows=8"});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].id, "fusion/norm");
  EXPECT_EQ(found[1].id, "model/net");
}

TEST(WithAxes, AnAxisThatNoChosenTechniqueHasNamesThoseThatThereAre) {
  EXPECT_THAT([] { with({norm(), matmul()}, {"rwos=8"}, "fusion/norm"); },
              refuses(AllOf(HasSubstr("rwos"), HasSubstr("there are rows, width"))));
  EXPECT_THAT([] { with({norm()}, {"rows=8", "depth=1"}); }, refuses(HasSubstr("all these axes")));
  EXPECT_THAT([] { with({technique_with("launch/graph", {nlohmann::ordered_json::object()})}, {"rows=8"}); },
              refuses(HasSubstr("there is none")));
  EXPECT_THAT([] { with({norm()}, {"rows=8", "rows=9"}); }, refuses(HasSubstr("rows twice")));
}

TEST(WithAxes, AValueOfAnotherTypeIsRefusedByTheTechniqueThatWasChosenAlone) {
  for (const char* text : {"rows=abc", "rows=0", "rows=-4", "rows=4.5", "rows=2147483648", "rows=99999999999999999999"})
    EXPECT_THAT([&] { with({norm()}, {text}); },
                refuses(AllOf(HasSubstr("fusion/norm"), HasSubstr("whole numbers from 1 to 2147483647"))))
        << text;
  const auto words = technique_with("other/rows", {{{"rows", "few"}}, {{"rows", "many"}}});
  EXPECT_THAT(texts_of(with({norm(), words}, {"rows=many"}, "other/rows")), ElementsAre("other/rows/rows:many*"));
}

TEST(WithAxes, BytesAreManyMore) {
  const auto copy = technique_with("ceiling/copy", {{{"bytes", 4096}}});
  EXPECT_THAT(texts_of(with({copy}, {"bytes=8589934592"})), ElementsAre("ceiling/copy/bytes:8589934592"));
}

TEST(WithAxes, ProcessesAreNoMoreThanAHostCanStart) {
  for (const std::string axis : {"ranks", "gpus", "readers", "workers", "cores", "threads"}) {
    const auto straggler = technique_with("distributed/straggler", {{{axis, 2}}});
    EXPECT_THAT(texts_of(with({straggler}, {axis + "=1024"})), ElementsAre("distributed/straggler/" + axis + ":1024"));
    EXPECT_THAT([&] { with({straggler}, {axis + "=1025"}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("whole numbers from 1 to 1024 there")));
  }
}

// A technique that does not know a word may take it for another.
TEST(WithAxes, WordsAreTheSweepsOwnUnlessTheyAreNumbers) {
  EXPECT_THAT(texts_of(with({matmul()}, {"shape=8192x4096x1024", "type=fp16", "regime=sustained"})),
              ElementsAre("precision/matmul/type:fp16/shape:8192x4096x1024/regime:sustained"));
  EXPECT_THAT([] { with({matmul()}, {"type=fp8"}); }, refuses(HasSubstr("takes bf16, fp16 there")));
  for (const char* text : {"shape=64x64", "shape=64", "shape=0x64x64", "shape=64xax64", "shape=064x64x64",
                           "shape=2147483648x64x64", "shape=-64x64x64", "shape=64x64x64x64"})
    EXPECT_THAT([&] { with({matmul()}, {text}); }, refuses(HasSubstr("numbers as in 64x64x64"))) << text;
  const auto cores = technique_with("input/pipeline", {{{"cores", 4}}, {{"cores", "all"}}});
  EXPECT_THAT(texts_of(with({cores}, {"cores=all,2"})),
              ElementsAre("input/pipeline/cores:all*", "input/pipeline/cores:2"));
}

TEST(WithAxes, TheEnginesOwnAxesSayHowACaseIsMeasured) {
  const auto sustained = with({matmul()}, {"shape=8x8x8", "regime=sustained"})[0].cases;
  ASSERT_EQ(sustained.size(), 2U);
  EXPECT_EQ(sustained[0].regime, "sustained");
  EXPECT_THAT([] { with({matmul()}, {"regime=warm"}); }, refuses(HasSubstr("burst, sustained")));
  const auto reduce = technique_with("distributed/reduce", {{{"gpus", 2}}, {{"gpus", 4}}}, 2);
  EXPECT_EQ(with({reduce}, {"gpus=8"})[0].cases[0].gpus, 8);
}

TEST(WithAxes, ATechniqueWithoutACaseNeedsNone) { EXPECT_THAT(with({}, {"rows=8"}), IsEmpty()); }

}  // namespace
}  // namespace gpulift
