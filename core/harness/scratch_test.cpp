#include "scratch.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "testing/said_on_mount.hpp"
#include "testing/system_folder.hpp"
#include "testing/temporary_folder.hpp"

namespace gpulift {
namespace {

std::string refusal(const std::filesystem::path& chosen) {
  try {
    const ScratchRoot root(chosen);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "made";
}

std::size_t count_entries(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

class ScratchRootTest : public testing::Test {
 protected:
  ~ScratchRootTest() override { unsetenv("GPULIFT_SCRATCH_DIR"); }

  static std::string refusal_by_variable(const std::filesystem::path& usual) {
    setenv("GPULIFT_SCRATCH_DIR", usual.c_str(), 1);
    return refusal({});
  }

  /// A child that holds a scratch folder in this one until it is killed; returns when it has it.
  pid_t start_holder() const {
    std::array<int, 2> ready{};
    EXPECT_EQ(pipe(ready.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      const ScratchRoot root(folder_);
      std::filesystem::create_directories(root.path() / "a/b");
      std::ofstream(root.path() / "a/b/file") << "text";
      if (write(ready[1], "x", 1) == 1) pause();
      _exit(1);
    }
    char held = 0;
    EXPECT_EQ(read(ready[0], &held, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
  }

  static void kill_holder(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(ScratchRootTest, MakesAFolderOfItsOwnAndRemovesItWithAllThatIsInIt) {
  std::ofstream(folder_ / "of the user") << "text";
  {
    const ScratchRoot root(folder_);
    EXPECT_EQ(root.missing(), "");
    EXPECT_EQ(root.path().parent_path(), std::filesystem::canonical(folder_));
    EXPECT_EQ(root.path().filename().string().size(), std::string("gpulift-XXXXXX").size());
    EXPECT_EQ(std::filesystem::status(root.path()).permissions(), std::filesystem::perms::owner_all);
    std::filesystem::create_directories(root.path() / "case");
    std::ofstream(root.path() / "case/file") << "text";
  }
  EXPECT_EQ(count_entries(folder_), 1U) << "only what the user has there";
}

TEST_F(ScratchRootTest, TwoAtATimeHaveFoldersOfTheirOwn) {
  const ScratchRoot one(folder_);
  const ScratchRoot other(folder_);
  EXPECT_NE(one.path(), other.path());
  EXPECT_TRUE(std::filesystem::is_directory(one.path()));
  EXPECT_TRUE(std::filesystem::is_directory(other.path()));
}

TEST_F(ScratchRootTest, IsAbsoluteForAFolderThatIsNot) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const ScratchRoot root(".");
  std::filesystem::current_path(before);
  EXPECT_TRUE(root.path().is_absolute());
}

TEST_F(ScratchRootTest, TakesTheFolderOfTheEnvironmentWhereNoneIsChosen) {
  setenv("GPULIFT_SCRATCH_DIR", folder_.c_str(), 1);
  EXPECT_EQ(ScratchRoot({}).path().parent_path(), std::filesystem::canonical(folder_));
}

TEST_F(ScratchRootTest, WithoutAnyIsInTheFolderForLargeTemporaryFiles) {
  if (!std::filesystem::is_directory("/var/tmp")) GTEST_SKIP() << "no /var/tmp";
  setenv("GPULIFT_SCRATCH_DIR", "", 1);
  EXPECT_EQ(ScratchRoot({}).path().parent_path(), std::filesystem::canonical("/var/tmp"));
}

TEST_F(ScratchRootTest, InSharedMemoryIsAnotherWhateverIsChosen) {
  setenv("GPULIFT_SCRATCH_DIR", folder_.c_str(), 1);
  std::filesystem::path path;
  {
    const ScratchRoot root = ScratchRoot::in_shared_memory();
    if (!root.missing().empty()) GTEST_SKIP() << root.missing();
    path = root.path();
    EXPECT_EQ(path.parent_path(), "/dev/shm");
    EXPECT_TRUE(std::filesystem::is_directory(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ScratchRootTest, AChosenFolderThatIsNotThereIsAUsageError) {
  const auto none = folder_ / "none";
  EXPECT_EQ(refusal(none), "--scratch: the scratch folder does not exist (" + none.string() + ")");
  EXPECT_EQ(refusal_by_variable(none),
            "GPULIFT_SCRATCH_DIR: the scratch folder does not exist (" + none.string() + ")");
}

TEST_F(ScratchRootTest, AFileIsNoFolder) {
  const auto file = folder_ / "file";
  std::ofstream(file) << "text";
  EXPECT_EQ(refusal(file), "--scratch: the scratch folder is not a folder (" + file.string() + ")");
  EXPECT_EQ(refusal(file / "below"),
            "--scratch: the scratch folder is not a folder (" + (file / "below").string() + ")");
}

TEST_F(ScratchRootTest, AFolderOfAnotherUserMayNotBeWrittenTo) {
  constexpr uid_t kNobody = 65534;
  std::filesystem::permissions(folder_, std::filesystem::perms{0555});
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && seteuid(kNobody) != 0) _exit(77);
    _exit(refusal(folder_).starts_with("--scratch: the scratch folder may not be written to (") ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this root may not become another user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(ScratchRootTest, AFolderMayBeReadOnly) {
  const auto said = said_on_mount(folder_, "", MS_RDONLY, [&] { return refusal(folder_); });
  if (!said) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(*said, "--scratch: the scratch folder is read-only (" + folder_.string() + ")");
}

TEST_F(ScratchRootTest, OfTheUsualFolderWhichNobodyChoseTheReasonIsKept) {
  const auto said = said_on_mount("/var/tmp", "", MS_RDONLY, [&] { return ScratchRoot({}).missing(); });
  if (!said) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(*said, "the scratch folder is read-only");
}

TEST_F(ScratchRootTest, ADiskWithoutAMebibyteIsFullAndNothingStaysOnIt) {
  const auto said =
      said_on_mount(folder_, "size=64k", 0, [&] { return refusal(folder_) + std::to_string(count_entries(folder_)); });
  if (!said) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(*said, "--scratch: the disk of the scratch folder is full (" + folder_.string() + ")0");
}

TEST_F(ScratchRootTest, MayBeDeletedMeanwhile) {
  {
    const ScratchRoot root(folder_);
    std::filesystem::remove_all(root.path());
  }
  EXPECT_EQ(count_entries(folder_), 0U);
}

TEST_F(ScratchRootTest, AForkedProcessThatEndsLeavesItAlone) {
  const ScratchRoot root(folder_);
  const pid_t child = fork();
  if (child == 0) {
    root.~ScratchRoot();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::filesystem::is_directory(root.path()));
}

TEST_F(ScratchRootTest, RemovesWhatAKilledProcessLeft) {
  kill_holder(start_holder());
  ASSERT_EQ(count_entries(folder_), 1U);
  const ScratchRoot root(folder_);
  EXPECT_EQ(count_entries(folder_), 1U);
  EXPECT_TRUE(std::filesystem::is_directory(root.path()));
}

TEST_F(ScratchRootTest, LeavesThatOfALivingProcess) {
  const pid_t holder = start_holder();
  {
    const ScratchRoot root(folder_);
    EXPECT_EQ(count_entries(folder_), 2U);
  }
  EXPECT_EQ(count_entries(folder_), 1U);
  kill_holder(holder);
}

TEST_F(ScratchRootTest, LeavesAFolderOfTheUserWhateverItsName) {
  std::filesystem::create_directory(folder_ / "gpulift-master");
  std::ofstream(folder_ / "gpulift-master/work") << "text";
  {
    const ScratchRoot root(folder_);
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "gpulift-master/work"));
}

class DiskFactsTest : public SystemFolder {
 protected:
  void write_mounts(const std::string& lines) const { write("proc/self/mountinfo", lines); }
  static std::string mounted(const std::string& device, const std::string& at, const std::string& filesystem) {
    return "36 35 " + device + " / " + at + " rw,noatime shared:1 - " + filesystem + " /dev/x rw\n";
  }
  std::filesystem::path made(const std::string& folder) const {
    std::filesystem::create_directories(root_ / folder);
    return std::filesystem::canonical(root_ / folder);
  }
};

TEST_F(DiskFactsTest, AreThoseOfTheInnermostMount) {
  const auto data = made("data");
  const auto data2 = made("data2/in");
  write_mounts(mounted("8:1", "/", "ext4") + mounted("259:0", data.string(), "xfs"));
  EXPECT_EQ(disk_facts(data, root_).filesystem, "xfs");
  EXPECT_EQ(disk_facts(data2, root_).filesystem, "ext4") << "its name only begins alike";
}

TEST_F(DiskFactsTest, OfMountsAtOnePlaceTheLastCounts) {
  const auto data = made("data");
  write_mounts(mounted("8:1", data.string(), "ext4") + mounted("0:31", data.string(), "tmpfs"));
  EXPECT_TRUE(disk_facts(data, root_).in_memory);
}

TEST_F(DiskFactsTest, FollowALinkToTheFolder) {
  const auto data = made("data");
  std::filesystem::create_symlink(data, root_ / "link");
  write_mounts(mounted("8:1", "/", "ext4") + mounted("259:0", data.string(), "xfs"));
  EXPECT_EQ(disk_facts(root_ / "link", root_).filesystem, "xfs");
}

TEST_F(DiskFactsTest, APlaceMayHaveASpaceInItsName) {
  const auto data = made("my data");
  auto escaped = data.string();
  escaped.replace(escaped.find(' '), 1, "\\040");
  write_mounts(mounted("8:1", "/", "ext4") + mounted("259:0", escaped, "xfs"));
  EXPECT_EQ(disk_facts(data, root_).filesystem, "xfs");
}

TEST_F(DiskFactsTest, ADiskSaysWhetherItTurns) {
  write_mounts(mounted("8:0", "/", "ext4"));
  write("sys/dev/block/8:0/queue/rotational", "1\n");
  EXPECT_EQ(disk_facts(root_, root_).rotational, true);
  write("sys/dev/block/8:0/queue/rotational", "0\n");
  EXPECT_EQ(disk_facts(root_, root_).rotational, false);
}

TEST_F(DiskFactsTest, APartitionTurnsAsItsDisk) {
  write_mounts(mounted("8:1", "/", "ext4"));
  write("sys/devices/sda/queue/rotational", "1\n");
  std::filesystem::create_directories(root_ / "sys/devices/sda/sda1");
  std::filesystem::create_directories(root_ / "sys/dev/block");
  std::filesystem::create_symlink("../../devices/sda/sda1", root_ / "sys/dev/block/8:1");
  EXPECT_EQ(disk_facts(root_, root_).rotational, true);
}

TEST_F(DiskFactsTest, UnknownOnesAreAbsent) {
  EXPECT_EQ(to_json(disk_facts(root_, root_)), (nlohmann::ordered_json{{"in_memory", false}}));
  write_mounts("36 35 0:52 / / rw\n" + mounted("0:52", "/", "nfs4") + "rubbish\n");
  EXPECT_EQ(to_json(disk_facts(root_, root_)), (nlohmann::ordered_json{{"filesystem", "nfs4"}, {"in_memory", false}}));
}

TEST_F(DiskFactsTest, OfAFolderThatIsNotThereNothingIsKnown) {
  const auto facts = disk_facts(root_ / "none");
  EXPECT_EQ(facts.filesystem, "");
  EXPECT_EQ(facts.free_bytes, 0);
}

/// Whether this process is told of a mount there. A chroot is told of none at its root, which may hold all its folders.
bool is_mounted(const std::string& at) {
  std::ifstream lines("/proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    if (fields.size() > 4 && fields[4] == at) return true;
  }
  return false;
}

TEST_F(DiskFactsTest, ThisMachineKnowsItsOwn) {
  if (!is_mounted("/")) GTEST_SKIP() << "/proc/self/mountinfo has no mount at /, as in a chroot";
  const auto facts = disk_facts(root_);
  EXPECT_FALSE(facts.filesystem.empty());
  EXPECT_GT(facts.free_bytes, 0);
}

TEST_F(DiskFactsTest, SharedMemoryIsInMemory) {
  if (!is_mounted("/dev/shm")) GTEST_SKIP() << "nothing is mounted at /dev/shm";
  const auto json = to_json(disk_facts("/dev/shm"));
  EXPECT_EQ(json.at("in_memory"), true);
  EXPECT_FALSE(json.contains("rotational"));
}

}  // namespace
}  // namespace gpulift
