#include "rows.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <stdexcept>

#include "core/harness/testing/temporary_folder.hpp"

namespace gpulift {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

TechniqueInfo technique_with(const std::string& id, const std::vector<std::string>& arms,
                             const std::vector<std::string>& cases) {
  TechniqueInfo info;
  info.id = id;
  info.arms = arms;
  for (const std::string& one : cases) info.cases.push_back({one, nlohmann::ordered_json::object(), false, "burst"});
  return info;
}

std::vector<TechniqueInfo> catalogue_of_rows() {
  TechniqueInfo missing;
  missing.id = "model/gpt2";
  missing.unavailable = "built without LibTorch";
  return {technique_with("launch/graph", {"stream", "graph", "updated"}, {"kernels:1", "kernels:2"}), missing,
          technique_with("step/whole", {"eager", "compiled"}, {""})};
}

class ReadRows : public testing::Test {
 protected:
  std::vector<Row> read(const std::string& text) const {
    std::ofstream(file_) << text;
    return read_rows(file_);
  }

  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "rows.tsv";
};

/// "technique/case: arm arm" of each selected case.
std::vector<std::string> texts_of(const RowSelection& selection) {
  std::vector<std::string> texts;
  for (const SelectedCase& one : selection.cases) {
    std::string text = full_case_id(one.technique->id, one.info->id) + ":";
    for (const std::string& arm : one.arms) text += " " + arm;
    texts.push_back(text);
  }
  return texts;
}

TEST_F(ReadRows, TakesThreeFieldsALineOfWhichTheCaseMayBeEmpty) {
  const auto rows = read("launch/graph\tkernels:1\tgraph\n\nstep/whole\t\tcompiled");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT((std::vector{rows[0].technique, rows[0].case_id, rows[0].arm}),
              ElementsAre("launch/graph", "kernels:1", "graph"));
  EXPECT_THAT((std::vector{rows[1].technique, rows[1].case_id, rows[1].arm}),
              ElementsAre("step/whole", "", "compiled"));
}

TEST_F(ReadRows, NamesTheFileAndLineOfWhatIsNoRow) {
  for (const char* line : {"a/b\tx", "a/b\tx\ty\tz", "a/b x y", "\tx\ty", "a/b\tx\t"}) {
    EXPECT_THAT([&] { read("a/b\tx\ty\n\n" + std::string(line) + "\n"); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr(file_.string() + ":3: '"), HasSubstr(line))))
        << line;
  }
}

TEST_F(ReadRows, RefusesAFileThatIsNotThereOrHasNoRow) {
  EXPECT_THAT([&] { read_rows(folder_.path() / "none"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr((folder_.path() / "none").string())));
  EXPECT_THAT([&] { read_rows(folder_.path()); }, ThrowsMessage<std::invalid_argument>(HasSubstr("cannot read")));
  EXPECT_THAT([&] { read("\n\n"); }, ThrowsMessage<std::invalid_argument>(HasSubstr("has no row")));
}

TEST(SelectRows, KeepsTheOrderOfTheCatalogueAndTakesEachArmOnce) {
  const auto all = catalogue_of_rows();
  const auto selection = select_rows(all, {{"step/whole", "", "compiled"},
                                           {"launch/graph", "kernels:2", "updated"},
                                           {"launch/graph", "kernels:2", "stream"},
                                           {"launch/graph", "kernels:1", "graph"},
                                           {"launch/graph", "kernels:2", "updated"}});
  EXPECT_THAT(texts_of(selection), ElementsAre("launch/graph/kernels:1: graph",
                                               "launch/graph/kernels:2: stream updated", "step/whole: compiled"));
  EXPECT_THAT(selection.unavailable, IsEmpty());
}

TEST(SelectRows, ATechniqueThatWasNotBuiltIsNamedOnceAndSkipped) {
  const auto all = catalogue_of_rows();
  const auto selection = select_rows(
      all, {{"model/gpt2", "batch:1", "amp"}, {"model/gpt2", "batch:2", "amp"}, {"step/whole", "", "eager"}});
  EXPECT_THAT(selection.unavailable, ElementsAre(&all[1]));
  EXPECT_THAT(texts_of(selection), ElementsAre("step/whole: eager"));
}

TEST(SelectRows, NamesTheFirstRowThatIsNotThereAndWhatIsWrongWithIt) {
  const auto all = catalogue_of_rows();
  const auto message_of = [&](const Row& wrong) {
    try {
      select_rows(all, {{"step/whole", "", "eager"}, wrong, {"neither/there", "", "x"}});
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(message_of({"launch/grap", "kernels:1", "graph"}),
            "launch/grap/kernels:1/graph: there is no technique launch/grap");
  EXPECT_EQ(message_of({"launch/graph", "kernels:3", "graph"}),
            "launch/graph/kernels:3/graph: launch/graph has no case 'kernels:3'");
  EXPECT_EQ(message_of({"step/whole", "", "fast"}), "step/whole/fast: step/whole has no arm 'fast'");
}

}  // namespace
}  // namespace gpulift
