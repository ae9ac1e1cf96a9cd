#include "catalogue.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "core/harness/testing/temporary_folder.hpp"

namespace gpulift {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Technique example() {
  return {.question = "Is it faster?",
          .expectation = "Twice.",
          .claims = {"a_claim"},
          .gpus = 0,
          .arms = {"plain", "fast"},
          .sweep = {{"direction", {"h2d", "d2h"}}, {"bytes", {4096, 65536}}},
          .quick = {{{"bytes", 65536}}}};
}

std::vector<std::string> ids(const nlohmann::ordered_json& manifest, bool quick_only = false) {
  std::vector<std::string> found;
  for (const auto& entry : manifest.at("cases")) {
    if (!quick_only || entry.at("quick").get<bool>()) found.push_back(entry.at("id"));
  }
  return found;
}

TEST(CaseId, NamesAxesAndValuesInOrder) {
  EXPECT_EQ(case_id({{"direction", "h2d"}, {"bytes", 65536}}), "direction:h2d/bytes:65536");
  EXPECT_EQ(case_id({}), "");
  EXPECT_EQ(full_case_id("transfer/copy", "bytes:4"), "transfer/copy/bytes:4");
  EXPECT_EQ(full_case_id("transfer/copy", ""), "transfer/copy");
}

TEST(Point, ComesBackFromJson) {
  const Point point{{"z", "word"}, {"a", 5'000'000'000}};
  EXPECT_EQ(point_from_json(point_to_json(point)), point);
  EXPECT_EQ(point_to_json(point).dump(), R"({"z":"word","a":5000000000})");
  EXPECT_THROW(point_from_json({{"a", nullptr}}), nlohmann::json::exception);
}

TEST(ManifestOf, HasAllCombinationsInOrder) {
  const auto manifest = manifest_of("transfer/copy", "tag", example());
  EXPECT_THAT(ids(manifest), ElementsAre("direction:h2d/bytes:4096", "direction:h2d/bytes:65536",
                                         "direction:d2h/bytes:4096", "direction:d2h/bytes:65536"));
  EXPECT_EQ(manifest.at("cases")[3].at("point").dump(), R"({"direction":"d2h","bytes":65536})");
}

TEST(ManifestOf, AQuickPatternSelectsWhatItNames) {
  EXPECT_THAT(ids(manifest_of("transfer/copy", "tag", example()), true),
              ElementsAre("direction:h2d/bytes:65536", "direction:d2h/bytes:65536"));
  Technique all = example();
  all.quick = {{}};
  EXPECT_EQ(ids(manifest_of("transfer/copy", "tag", all), true).size(), 4U);
  Technique none = example();
  none.quick = {};
  EXPECT_TRUE(ids(manifest_of("transfer/copy", "tag", none), true).empty());
  Technique two = example();
  two.quick = {{{"direction", "h2d"}, {"bytes", 4096}}, {{"direction", "sideways"}}};
  EXPECT_THAT(ids(manifest_of("transfer/copy", "tag", two), true), ElementsAre("direction:h2d/bytes:4096"));
}

TEST(ManifestOf, TheRegimeIsAnAxisOrBurst) {
  EXPECT_EQ(manifest_of("transfer/copy", "tag", example()).at("cases")[0].at("regime"), "burst");
  Technique both = example();
  both.sweep = {{"regime", {"burst", "sustained"}}};
  const auto cases = manifest_of("transfer/copy", "tag", both).at("cases");
  EXPECT_EQ(cases[0].at("regime"), "burst");
  EXPECT_EQ(cases[1].at("regime"), "sustained");
}

TEST(ManifestOf, NamesThePythonArms) {
  Technique technique = example();
  EXPECT_EQ(manifest_of("transfer/copy", "tag", technique).at("python").dump(), "[]");
  technique.python = {"eager"};
  EXPECT_EQ(manifest_of("transfer/copy", "tag", technique).at("python").dump(), R"(["eager"])");
}

TEST(ManifestOf, TheExpectationIsOneParagraphHoweverItIsWrapped) {
  Technique wrapped = example();
  wrapped.expectation = R"(
      Twice: 2 x 3 bytes
      are 6.)";
  EXPECT_EQ(manifest_of("transfer/copy", "tag", wrapped).at("expectation"), "Twice: 2 x 3 bytes are 6.");
}

TEST(ManifestOf, SaysTheTraits) {
  const auto plain = manifest_of("transfer/copy", "tag", example());
  for (const char* trait : {"ceiling", "integrity", "launch_bound"}) EXPECT_FALSE(plain.at(trait)) << trait;
  EXPECT_TRUE(plain.at("controls").empty());
  Technique technique = example();
  technique.integrity = true;
  technique.launch_bound = true;
  technique.controls = {"b"};
  const auto manifest = manifest_of("transfer/copy", "tag", technique);
  EXPECT_TRUE(manifest.at("integrity"));
  EXPECT_TRUE(manifest.at("launch_bound"));
  EXPECT_EQ(manifest.at("controls").dump(), R"(["b"])");
}

TEST(ManifestOf, SaysPredictionsWhatWasFoundAndCaches) {
  Technique technique = example();
  EXPECT_TRUE(manifest_of("transfer/copy", "tag", technique).at("predict").empty());
  EXPECT_EQ(manifest_of("transfer/copy", "tag", technique).at("l2"), "");
  technique.predict = {{.arm = "b", .cases = {{"bytes", 4}}, .on = "h100", .speedup = {{2, 3}}},
                       {.arm = "a", .step_time_s = {{1e-3, 2e-3}}}};
  technique.found = "The driver\n  waits.";
  technique.l2 = Cache::kBySize;
  technique.page_cache = Cache::kByCase;
  const auto manifest = manifest_of("transfer/copy", "tag", technique);
  EXPECT_EQ(manifest.at("predict").dump(), R"([{"arm":"b","case":{"bytes":4},"on":"h100","speedup":[2.0,3.0]},)"
                                           R"({"arm":"a","case":{},"step_time_s":[0.001,0.002]}])");
  EXPECT_EQ(manifest.at("found"), "The driver waits.");
  EXPECT_EQ(manifest.at("l2"), "by_size");
  EXPECT_EQ(manifest.at("page_cache"), "by_case");
}

TEST(ManifestOf, WithoutASweepThereIsOneCase) {
  Technique one = example();
  one.sweep = {};
  EXPECT_THAT(ids(manifest_of("transfer/copy", "tag", one)), ElementsAre(""));
}

class ReadCatalogue : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  auto reading() {
    return [this] { read_catalogue({folder_}); };
  }
  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(ReadCatalogue, ReadsWhatManifestOfWroteSortedById) {
  write("transfer.copy.json", manifest_of("transfer/copy", "tag", example()).dump());
  write("a.z.json", manifest_of("a/z", "tag", example()).dump());
  write("transfer.copy.so", "not looked at");
  const auto catalogue = read_catalogue({folder_});
  ASSERT_EQ(catalogue.size(), 2U);
  EXPECT_EQ(catalogue[0].id, "a/z");
  const TechniqueInfo& copy = catalogue[1];
  EXPECT_EQ(copy.id, "transfer/copy");
  EXPECT_EQ(copy.module, folder_ / "transfer.copy.so");
  EXPECT_EQ(copy.abi_tag, "tag");
  EXPECT_THAT(copy.arms, ElementsAre("plain", "fast"));
  EXPECT_EQ(copy.gpus, 0);
  EXPECT_FALSE(copy.ceiling);
  ASSERT_EQ(copy.cases.size(), 4U);
  EXPECT_TRUE(copy.cases[1].quick);
  EXPECT_EQ(copy.cases[1].id, "direction:h2d/bytes:65536");
}

TEST_F(ReadCatalogue, KeepsTheReasonOfWhatWasNotBuilt) {
  write("a.b.json", R"({"id":"a/b","unavailable":"built without LibTorch","remedy":"install it"})");
  const auto catalogue = read_catalogue({folder_});
  EXPECT_EQ(catalogue[0].unavailable, "built without LibTorch");
  EXPECT_EQ(catalogue[0].remedy, "install it");
  EXPECT_TRUE(catalogue[0].cases.empty());
}

TEST_F(ReadCatalogue, AModuleOfAnotherLibTorchIsRefusedWithBothVersions) {
  write("version.py", "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\n");
  auto manifest = manifest_of("compile/graph", "tag", example());
  manifest["torch"] = torch_in(folder_ / "version.py");
  write("compile.graph.json", manifest.dump());
  EXPECT_EQ(read_catalogue({folder_})[0].unavailable, "");
  EXPECT_EQ(read_catalogue({folder_})[0].cases.size(), 4U);

  write("version.py", "__version__ = '2.12.1+cpu'\n");
  const auto other = read_catalogue({folder_})[0];
  EXPECT_EQ(other.unavailable, "built against torch 2.11.0+cu130, but torch 2.12.1+cpu is there now");
  EXPECT_THAT(other.remedy, HasSubstr("./gpulift setup"));
  EXPECT_TRUE(other.cases.empty());
  EXPECT_EQ(other.manifest.at("unavailable"), other.unavailable);  // what `list` shows

  std::filesystem::remove(folder_ / "version.py");
  EXPECT_EQ(read_catalogue({folder_})[0].unavailable, "built against torch 2.11.0+cu130, but it is no longer there");
}

TEST_F(ReadCatalogue, AFileWithoutAVersionIsNoLibTorch) {
  write("version.py", "debug = False\n");
  EXPECT_THAT([this] { torch_in(folder_ / "version.py"); },
              ThrowsMessage<CatalogueError>(HasSubstr("names no version")));
}

TEST_F(ReadCatalogue, ABrokenManifestIsNamed) {
  for (const char* text : {"", "{", "[]", R"({"id":"a/b"})", R"({"id":5})"}) {
    write("a.b.json", text);
    EXPECT_THAT(reading(), ThrowsMessage<CatalogueError>(AllOf(HasSubstr("a.b.json"), HasSubstr("build again"))))
        << text;
  }
}

TEST_F(ReadCatalogue, AnEmptyOrMissingFolderIsAnError) {
  EXPECT_THAT(reading(), ThrowsMessage<CatalogueError>(HasSubstr("build first")));
  EXPECT_THAT([this] { read_catalogue({folder_ / "none"}); },
              ThrowsMessage<CatalogueError>(HasSubstr("no folder of modules")));
}

TEST_F(ReadCatalogue, TwoTechniquesOfOneIdAreRefused) {
  const TemporaryFolder other;
  const std::string manifest = manifest_of("a/b", "tag", example()).dump();
  write("a.b.json", manifest);
  std::ofstream(other.path() / "a.b.json") << manifest;
  EXPECT_THAT([&] { read_catalogue({folder_, other.path()}); },
              ThrowsMessage<CatalogueError>(HasSubstr("two techniques have the id a/b")));
}

TEST_F(ReadCatalogue, AScriptAloneHasNoModule) {
  auto manifest = manifest_of("a/b", "", example());
  manifest["script"] = true;
  manifest.erase("abi_tag");
  write("a.b.json", manifest.dump());
  const TechniqueInfo script = read_catalogue({folder_})[0];
  EXPECT_TRUE(script.is_script());
  EXPECT_EQ(script.module, folder_ / "a.b.py");
}

TEST_F(ReadCatalogue, AnAxisOfGpusAsksForMoreByCase) {
  Technique technique = example();
  technique.gpus = 2;
  technique.sweep = {{"gpus", {1, 2, 4}}};
  write("a.b.json", manifest_of("a/b", "tag", technique).dump());
  const auto catalogue = read_catalogue({folder_});
  std::vector<int> gpus;
  for (const CaseInfo& info : catalogue[0].cases) gpus.push_back(info.gpus);
  EXPECT_THAT(gpus, ElementsAre(2, 2, 4));
}

TEST_F(ReadCatalogue, TheSourceIsByNameAndTheRestIsRefused) {
  write("sums", "12ab  copy.cpp\n34cd  kernels/copy.cu\n");
  EXPECT_EQ(source_in(folder_ / "sums").dump(), R"({"copy.cpp":"12ab","kernels/copy.cu":"34cd"})");
  write("sums", "12ab copy.cpp\n");
  EXPECT_THROW(source_in(folder_ / "sums"), CatalogueError);
  EXPECT_THROW(source_in(folder_ / "missing"), CatalogueError);
}

}  // namespace
}  // namespace gpulift
