#include "lock.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>

#include "testing/temporary_folder.hpp"

namespace gpulift {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class FileLockTest : public testing::Test {
 protected:
  /// A child that takes the lock and sleeps, by a name of its own if one is given; returns when it has it.
  pid_t start_holder(const char* name = nullptr) const {
    std::array<int, 2> ready{};
    EXPECT_EQ(pipe(ready.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (name != nullptr) prctl(PR_SET_NAME, name);
      const FileLock lock(path_, "GPU 1a2b3c4d");
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

  std::string refusal() const {
    try {
      const FileLock lock(path_, "GPU 1a2b3c4d");
    } catch (const InUse& error) {
      return error.what();
    }
    return "locked";
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  const std::filesystem::path path_ = folder_ / "card.lock";
};

TEST_F(FileLockTest, NamesTheProcessThatHoldsIt) {
  const pid_t child = start_holder();
  std::string command;
  std::getline(std::ifstream("/proc/self/comm"), command);
  EXPECT_EQ(refusal(), "GPU 1a2b3c4d is in use by gpulift (process " + std::to_string(child) + ", " + command +
                           "); wait for it or stop it");
  kill_holder(child);
}

TEST_F(FileLockTest, HidesWhatATerminalWouldObeyInThatName) {
  const pid_t child = start_holder("a\x1b]0;\x9b");
  EXPECT_EQ(refusal(), "GPU 1a2b3c4d is in use by gpulift (process " + std::to_string(child) +
                           ", a?]0;?); wait for it or stop it");
  kill_holder(child);
}

TEST_F(FileLockTest, IsFreeAfterItsHolderWasKilled) {
  kill_holder(start_holder());
  EXPECT_EQ(refusal(), "locked");
}

TEST_F(FileLockTest, IsFreeAfterItsHolderEnded) {
  {
    const FileLock lock(path_, "host");
  }
  EXPECT_EQ(refusal(), "locked");
}

TEST_F(FileLockTest, ExcludesASecondLockOfTheSameProcess) {
  const FileLock lock(path_, "host");
  EXPECT_NE(refusal(), "locked");
}

TEST_F(FileLockTest, TheNextHolderReplacesTheLongerNumberOfAnEarlierOne) {
  std::ofstream(path_) << "123456789\n";
  const FileLock lock(path_, "host");
  std::string line;
  std::getline(std::ifstream(path_), line);
  EXPECT_EQ(line, std::to_string(getpid()));
  EXPECT_EQ(std::filesystem::file_size(path_), line.size() + 1);
}

TEST_F(FileLockTest, SaysSoWhenTheHolderIsUnknown) {
  const FileLock lock(path_, "host");
  std::filesystem::resize_file(path_, 0);
  EXPECT_EQ(refusal(), "GPU 1a2b3c4d is in use by gpulift (process unknown); wait for it or stop it");
}

TEST_F(FileLockTest, MayBeUsedByEveryUserWhateverTheUmask) {
  const auto before = umask(0077);
  {
    const FileLock lock(path_, "host");
  }
  umask(before);
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms{0666});
}

TEST_F(FileLockTest, DoesNotPassToProgramsThatAreStarted) {
  pid_t child = 0;
  {
    const FileLock lock(path_, "host");
    child = fork();
    if (child == 0) {
      execlp("sleep", "sleep", "600", nullptr);
      _exit(127);
    }
    // Until its exec, the child has a copy of the lock.
    while (std::filesystem::read_symlink("/proc/" + std::to_string(child) + "/exe") ==
           std::filesystem::read_symlink("/proc/self/exe")) {
      usleep(1000);
    }
  }
  EXPECT_EQ(refusal(), "locked");
  kill_holder(child);
}

TEST_F(FileLockTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THROW(FileLock(folder_ / "none" / "card.lock", "host"), std::system_error);
}

TEST_F(FileLockTest, FollowsNoLink) {
  std::filesystem::create_symlink(folder_ / "elsewhere", path_);
  EXPECT_THAT([&] { FileLock(path_, "host"); }, ThrowsMessage<std::runtime_error>(HasSubstr("a link is in its place")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "elsewhere"));
}

TEST_F(FileLockTest, EmptiesNoFileOfAnotherName) {
  std::ofstream(folder_ / "precious") << "mine";
  std::filesystem::create_hard_link(folder_ / "precious", path_);
  EXPECT_THAT([&] { FileLock(path_, "host"); }, ThrowsMessage<std::runtime_error>(HasSubstr("a link is in its place")));
  EXPECT_EQ(std::filesystem::file_size(folder_ / "precious"), 4);
}

TEST_F(FileLockTest, DoesNotWaitForWhoWritesToAPipeInItsPlace) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0666), 0);
  EXPECT_THAT([&] { FileLock(path_, "host"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("what is no file is in its place")));
}

TEST_F(FileLockTest, AFolderInItsPlaceIsToBeRemoved) {
  std::filesystem::create_directory(path_);
  EXPECT_THAT([&] { FileLock(path_, "host"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("a folder is in its place; remove it, or ")));
}

TEST(LockPath, IsNamedAfterTheCard) {
  EXPECT_EQ(lock_path("1a2b3c4d"), std::filesystem::temp_directory_path() / "gpulift-1a2b3c4d.lock");
}

}  // namespace
}  // namespace gpulift
