#include "host_limits.hpp"

#include <gtest/gtest.h>

#include "testing/temporary_folder.hpp"

namespace gpulift {
namespace {

/// A folder with files of one's own in place of /proc and /sys.
class HostLimits : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void write_group(const std::string& file, const std::string& text) const { write("sys/fs/cgroup/" + file, text); }

  const TemporaryFolder temporary_;
  const std::filesystem::path root_ = temporary_.path();
};

TEST_F(HostLimits, WithoutGroupsAllIsAllowed) {
  EXPECT_EQ(allowed_cores(96, root_), 96);
  EXPECT_GT(allowed_memory_bytes(root_), std::size_t{1} << 20);
}

TEST_F(HostLimits, AreThoseOfTheOwnGroup) {
  write("proc/self/cgroup", "0::/a/b\n");
  write_group("a/b/cpu.max", "200000 100000\n");
  write_group("a/b/memory.max", "1048576\n");
  EXPECT_EQ(allowed_cores(96, root_), 2);
  EXPECT_EQ(allowed_cores(1, root_), 1);
  EXPECT_EQ(allowed_memory_bytes(root_), 1048576U);
}

TEST_F(HostLimits, AreTheLowestOfTheGroupsAbove) {
  write("proc/self/cgroup", "0::/a/b\n");
  write_group("cpu.max", "400000 100000\n");
  write_group("a/cpu.max", "800000 100000\n");
  write_group("a/b/cpu.max", "max 100000\n");
  write_group("a/memory.max", "1048576\n");
  write_group("a/b/memory.max", "max\n");
  EXPECT_EQ(allowed_cores(96, root_), 4);
  EXPECT_EQ(allowed_memory_bytes(root_), 1048576U);
}

// Inside a container: its own group lies at the root, whether the path says so or tells of the host.
TEST_F(HostLimits, OfAContainerAreAtTheRoot) {
  write_group("cpu.max", "150000 100000\n");
  for (const char* path : {"/", "/docker/0123", "/../.."}) {
    write("proc/self/cgroup", std::string("0::") + path + "\n");
    EXPECT_EQ(allowed_cores(96, root_), 2) << path << ": one and a half";
  }
}

TEST_F(HostLimits, OfVersion1AreReadToo) {
  write("proc/self/cgroup", "9:memory:/a\n4:cpu,cpuacct:/a\n2:cpuset:/a\n1:name=systemd:/a\n");
  write_group("cpu/a/cpu.cfs_quota_us", "300000\n");
  write_group("cpu/a/cpu.cfs_period_us", "100000\n");
  write_group("memory/a/memory.limit_in_bytes", "1048576\n");
  EXPECT_EQ(allowed_cores(96, root_), 3);
  EXPECT_EQ(allowed_memory_bytes(root_), 1048576U);
  write_group("cpu/a/cpu.cfs_quota_us", "-1\n");
  write_group("memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(allowed_cores(96, root_), 96);
  EXPECT_GT(allowed_memory_bytes(root_), 1048576U);
}

TEST_F(HostLimits, ThatCannotBeReadAreNone) {
  write("proc/self/cgroup", "rubbish\n0::/a\n");
  write_group("a/cpu.max", "rubbish\n");
  write_group("a/memory.max", "");
  EXPECT_EQ(allowed_cores(96, root_), 96);
}

}  // namespace
}  // namespace gpulift
