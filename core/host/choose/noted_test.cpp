#include "noted.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "core/harness/testing/temporary_folder.hpp"

namespace {

using Json = nlohmann::ordered_json;

Json context_of(const std::string& card) { return {{"gpu", {{"card", card}}}}; }

class Noted : public testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(folder_ / "theme.name.jsonl", std::ios::app) << text; }
  void write_record(const std::string& card, const std::string& plan) const {
    const Json record{
        {"technique", "theme/name"}, {"case_id", "n:1"}, {"notes", {{"plan", plan}}}, {"context", context_of(card)}};
    write(record.dump() + "\n");
  }

  const gpulift::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(Noted, TheLastNoteOfACaseCounts) {
  write_record("aaaa", "first");
  write_record("aaaa", "second");
  const auto notes = gpulift::noted_in(folder_, context_of("aaaa"));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes.at("theme/name/n:1").at("plan"), "second");
}

TEST_F(Noted, NotesOfAnotherCardAreNotRecalled) {
  write_record("bbbb", "theirs");
  EXPECT_TRUE(gpulift::noted_in(folder_, context_of("aaaa")).empty());
}

TEST_F(Noted, ALineThatIsCutOffIsPassedOver) {
  write_record("aaaa", "whole");
  write(R"({"technique": "theme/na)");
  EXPECT_EQ(gpulift::noted_in(folder_, context_of("aaaa")).size(), 1u);
}

TEST_F(Noted, AFolderThatIsNotThereIsNamed) {
  try {
    gpulift::noted_in(folder_ / "none", context_of("aaaa"));
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("there is no such folder"), std::string::npos);
  }
}

}  // namespace
