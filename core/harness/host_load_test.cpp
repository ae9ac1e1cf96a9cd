#include "host_load.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <string>

#include "testing/system_folder.hpp"

namespace gpulift {
namespace {

using testing::IsNull;

class HostLoad : public SystemFolder {
 protected:
  void process(int pid, int parent, int ticks, const std::string& name = "work") const {
    const std::string ids = std::to_string(pid) + " (" + name + ") S " + std::to_string(parent);
    write("proc/" + std::to_string(pid) + "/stat", ids + " 1 1 0 -1 0 0 0 0 0 " + std::to_string(ticks) + " 10 3 2 20");
  }
};

constexpr double kTicksPerSecond = 100;

TEST_F(HostLoad, OwnTimeIsThatOfAllDescendantsWhateverTheyAreCalled) {
  write("proc/stat", "cpu  1000 200 300 99999 50 6 4 70 0 0\ncpu0 1 2 3\n");
  process(10, 1, 100);
  process(11, 10, 200, "a) S 99 (b");
  process(12, 11, 300);
  process(13, 1, 5000);
  const auto times = cpu_times(root_, 10);
  ASSERT_TRUE(times);
  ASSERT_EQ(sysconf(_SC_CLK_TCK), kTicksPerSecond);
  EXPECT_DOUBLE_EQ(times->busy_s, 15.10);
  EXPECT_DOUBLE_EQ(times->stolen_s, 0.70);
  EXPECT_DOUBLE_EQ(times->own_s, 6.45) << "user, system, and both of children that ended";
}

TEST_F(HostLoad, IsUnknownWithoutProc) {
  EXPECT_FALSE(cpu_times(root_, 10));
  write("proc/stat", "intr 5\n");
  EXPECT_FALSE(cpu_times(root_, 10));
}

TEST_F(HostLoad, ProcessesThatCannotBeReadAreLeftOut) {
  write("proc/stat", "cpu 1000 0 0 0 0 0 0 0\n");
  process(10, 1, 100);
  write("proc/11/stat", "11 (cut");
  write("proc/12/stat", "");
  EXPECT_DOUBLE_EQ(cpu_times(root_, 10)->own_s, 1.15);
}

TEST(HostLoadOf, IsTheMeanOverTheTimeBetween) {
  const auto load =
      host_load({.busy_s = 10, .stolen_s = 1, .own_s = 4}, {.busy_s = 18, .stolen_s = 1.5, .own_s = 6}, 2);
  EXPECT_DOUBLE_EQ(load.at("own_cores"), 1);
  EXPECT_DOUBLE_EQ(load.at("other_cores"), 3);
  EXPECT_DOUBLE_EQ(load.at("stolen_cores"), 0.25);
}

TEST(HostLoadOf, TicksNeverMakeItNegativeAndAMomentHasNone) {
  const auto load = host_load({.busy_s = 1, .own_s = 1}, {.busy_s = 1.99, .own_s = 2}, 1);
  EXPECT_EQ(load.at("other_cores"), 0);
  EXPECT_THAT(host_load({}, {.busy_s = 1}, 0.05), IsNull());
}

TEST(HostLoadHere, AChildThatSpinsIsOwnTime) {
  const auto before = cpu_times();
  ASSERT_TRUE(before);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto end = std::clock() + CLOCKS_PER_SEC / 2;  // of this process's own processor time
    while (std::clock() < end) {
    }
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  const auto after = cpu_times();
  ASSERT_TRUE(after);
  EXPECT_GE(after->own_s - before->own_s, 0.45);
  EXPECT_GE(after->busy_s - before->busy_s, 0.4);
}

}  // namespace
}  // namespace gpulift
