#include "record_file.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "testing/temporary_folder.hpp"

namespace gpulift {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

nlohmann::ordered_json record(int launch) {
  return {{"schema", kSchemaVersion},
          {"technique", "transfer/copy"},
          {"case_id", "bytes:4"},
          {"launch", launch},
          {"outcome", "ok"}};
}

class RecordFolderTest : public testing::Test {
 protected:
  RecordFolder::Warn warn() {
    return [this](const std::string& line) { warnings_.push_back(line); };
  }
  std::string content() const {
    std::stringstream text;
    text << std::ifstream(file_).rdbuf();
    return text.str();
  }
  void write(const std::string& text) const { std::ofstream(file_) << text; }
  auto opening() {
    return [this] { RecordFolder(folder_, warn()); };
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  const std::filesystem::path file_ = folder_ / "transfer.copy.jsonl";
  std::vector<std::string> warnings_;
};

TEST_F(RecordFolderTest, KeepsOneLineForEachRecordAndReadsThemAgain) {
  {
    RecordFolder folder(folder_, warn());
    folder.append(record(0));
    folder.append(record(1));
    EXPECT_THAT(folder.records(), ElementsAre(record(0), record(1)));
  }
  EXPECT_EQ(content(), record(0).dump() + "\n" + record(1).dump() + "\n");
  const RecordFolder again(folder_, warn());
  EXPECT_THAT(again.records(), ElementsAre(record(0), record(1)));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(RecordFolderTest, MakesTheFolder) {
  RecordFolder folder(folder_ / "new" / "deep", warn());
  folder.append(record(0));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "new" / "deep" / "transfer.copy.jsonl"));
}

TEST_F(RecordFolderTest, DropsALastLineThatWasCutOffAndSaysSo) {
  write(record(0).dump() + "\n" + record(1).dump().substr(0, 20));
  RecordFolder folder(folder_, warn());
  EXPECT_THAT(folder.records(), ElementsAre(record(0)));
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("transfer.copy.jsonl"), HasSubstr("cut off"))));
  folder.append(record(2));
  EXPECT_EQ(content(), record(0).dump() + "\n" + record(2).dump() + "\n");
}

TEST_F(RecordFolderTest, DropsALastLineThatOnlyLacksItsEnd) {
  write(record(0).dump());
  const RecordFolder folder(folder_, warn());
  EXPECT_THAT(folder.records(), IsEmpty());
  EXPECT_EQ(content(), "");
  EXPECT_EQ(warnings_.size(), 1U);
}

TEST_F(RecordFolderTest, RefusesAFileWithAnotherBrokenLine) {
  const std::string text = "nonsense\n" + record(0).dump() + "\n";
  write(text);
  EXPECT_THAT(opening(), ThrowsMessage<RecordError>(HasSubstr("transfer.copy.jsonl:1: not a JSON object")));
  EXPECT_EQ(content(), text);
}

TEST_F(RecordFolderTest, RefusesALastLineThatIsWholeAndNoRecord) {
  const std::string text = record(0).dump() + "\nnonsense\n";
  write(text);
  EXPECT_THAT(opening(), ThrowsMessage<RecordError>(HasSubstr("transfer.copy.jsonl:2: not a JSON object")));
  EXPECT_EQ(content(), text);
}

TEST_F(RecordFolderTest, RefusesAFileThatCannotBeRead) {
  std::filesystem::create_directory(file_);
  EXPECT_THAT(opening(), ThrowsMessage<RecordError>(HasSubstr("cannot read all of transfer.copy.jsonl")));
}

// Its size is said to be 0.
TEST_F(RecordFolderTest, RefusesAFileThatIsNotAsLongAsWhatWasRead) {
  if (!std::filesystem::exists("/proc/self/cmdline")) GTEST_SKIP() << "this system has no /proc";
  std::filesystem::create_symlink("/proc/self/cmdline", file_);
  EXPECT_THAT(opening(), ThrowsMessage<RecordError>(HasSubstr("cannot read all of transfer.copy.jsonl")));
}

TEST_F(RecordFolderTest, RefusesResultsOfANewerSchema) {
  auto newer = record(0);
  newer["schema"] = "2.0";
  write(newer.dump() + "\n");
  EXPECT_THAT(opening(),
              ThrowsMessage<RecordError>(AllOf(HasSubstr("schema 2.0 is newer"), HasSubstr("update gpulift"))));
  EXPECT_EQ(content(), newer.dump() + "\n");
}

TEST_F(RecordFolderTest, ReadsANewerMinorVersion) {
  auto newer = record(0);
  newer["schema"] = "1.99";
  write(newer.dump() + "\n");
  EXPECT_EQ(RecordFolder(folder_, warn()).records().size(), 1U);
}

class ForeignLine : public RecordFolderTest, public testing::WithParamInterface<const char*> {};

TEST_P(ForeignLine, IsRefusedAndKept) {
  const std::string text = std::string(GetParam()) + "\n";
  write(text);
  EXPECT_THAT(opening(), ThrowsMessage<RecordError>(AllOf(HasSubstr(":1: not a record"), HasSubstr("another folder"))));
  EXPECT_EQ(content(), text);
}

INSTANTIATE_TEST_SUITE_P(Lines, ForeignLine,
                         testing::Values("{}", R"({"schema":1})", R"({"schema":"none"})", R"({"schema":"1.0"})"));

TEST_F(RecordFolderTest, SaysWhenTheFolderCannotBeMade) {
  write("a file in the way");
  EXPECT_THAT([this] { RecordFolder(file_ / "below", warn()); },
              ThrowsMessage<RecordError>(HasSubstr("cannot create the folder")));
}

TEST_F(RecordFolderTest, SaysWhenTheFolderCannotBeWritten) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  chmod(folder_.c_str(), 0555);
  EXPECT_THAT(opening(), ThrowsMessage<RecordError>(HasSubstr("cannot write to the folder")));
  chmod(folder_.c_str(), 0755);
}

TEST_F(RecordFolderTest, RefusesASecondWriter) {
  const RecordFolder first(folder_, warn());
  EXPECT_THAT(opening(), ThrowsMessage<RecordError>(HasSubstr("another run is writing")));
}

TEST_F(RecordFolderTest, LeavesNoLockFileBehind) {
  {
    const RecordFolder folder(folder_, warn());
    EXPECT_TRUE(std::filesystem::exists(folder_ / ".lock"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".lock"));
  write("nonsense\n{}\n");
  EXPECT_THROW(opening()(), RecordError);
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".lock"));
}

TEST_F(RecordFolderTest, ALockFileOfAKilledRunDoesNoHarm) {
  std::ofstream(folder_ / ".lock") << "";
  EXPECT_NO_THROW(opening()());
}

// The file is made and removed all the time: every writer must meet every other one.
TEST_F(RecordFolderTest, NeverHasTwoWritersHoweverOftenTheLockFileGoes) {
  std::atomic<int> inside = 0;
  std::atomic<int> taken = 0;
  std::atomic<bool> met = false;
  const auto take_turns = [&] {
    for (int i = 0; i < 300; ++i) {
      try {
        const RecordFolder folder(folder_, [](const std::string&) {});
        if (++inside > 1) met = true;
        ++taken;
        --inside;
      } catch (const RecordError&) {
        std::this_thread::yield();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back(take_turns);
  }
  EXPECT_FALSE(met);
  EXPECT_GT(taken, 0);
}

TEST_F(RecordFolderTest, IsFreeAgainAfterAFailure) {
  write("nonsense\n{}\n");
  EXPECT_THROW(opening()(), RecordError);
  std::filesystem::remove(file_);
  EXPECT_NO_THROW(opening()());
}

TEST_F(RecordFolderTest, SaysWhenTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  RecordFolder folder(folder_, warn());
  std::filesystem::create_symlink("/dev/full", file_);
  EXPECT_THAT([&] { folder.append(record(0)); },
              ThrowsMessage<WriteError>(AllOf(HasSubstr("No space left"), HasSubstr("run again to go on"))));
  EXPECT_THAT(folder.records(), IsEmpty());
}

TEST_F(RecordFolderTest, RefusesNumbersThatAreNotFinite) {
  RecordFolder folder(folder_, warn());
  auto broken = record(0);
  broken["arms"] = {{{"windows", {1.0, std::numeric_limits<double>::infinity()}}}};
  EXPECT_THROW(folder.append(broken), std::domain_error);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST(RequireFinite, NamesTheKey) {
  nlohmann::ordered_json json{{"arms", {{{"cost", {{"bytes", std::numeric_limits<double>::quiet_NaN()}}}}}}};
  EXPECT_THAT([&] { require_finite(json); }, ThrowsMessage<std::domain_error>(HasSubstr("arms.0.cost.bytes")));
  json["arms"][0]["cost"]["bytes"] = 1.0;
  EXPECT_NO_THROW(require_finite(json));
}

}  // namespace
}  // namespace gpulift
