#include "workloads/host/stream_ops.hpp"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/utsname.h>

#include <cstddef>
#include <new>
#include <string>

#include "workloads/host/allocator_in_use.hpp"

namespace gpulift {
namespace {

constexpr std::size_t kBytes = 999'999;  // no multiple of a line, a page or the number of threads

std::string name_of(const testing::TestParamInfo<StreamOp>& info) {
  const std::string names[] = {"Read", "Write", "Copy", "Triad"};
  return names[static_cast<int>(info.param)];
}

class HostStreamTest : public testing::TestWithParam<StreamOp> {};

TEST_P(HostStreamTest, IsExact) {
  HostStream stream(GetParam(), kBytes, 1);
  stream.poison();
  stream.run();
  EXPECT_EQ(stream.error(), 0);
}

TEST_P(HostStreamTest, FindsThatNothingRan) {
  HostStream stream(GetParam(), kBytes, 1);
  stream.poison();
  EXPECT_FALSE(stream.error() <= 0) << "NaN or above 0";
}

TEST_P(HostStreamTest, MayRunManyTimes) {
  HostStream stream(GetParam(), kBytes, 2);
  for (int i = 0; i < 3; ++i) stream.run();
  EXPECT_EQ(stream.error(), 0);
}

TEST_P(HostStreamTest, CountsTheWholeFootprintOnce) {
  const HostStream stream(GetParam(), kBytes, 1);
  EXPECT_LE(stream.traffic_bytes(), kBytes);
  EXPECT_GT(stream.traffic_bytes(), kBytes - 3 * 64) << "less than a line per array is left over";
}

TEST_P(HostStreamTest, IsExactWithMoreThreadsThanLines) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(7);
  HostStream stream(GetParam(), 3 * 5 * 64, 1);
  stream.poison();
  stream.run();
  omp_set_num_threads(before);
  EXPECT_EQ(stream.error(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, HostStreamTest,
                         testing::Values(StreamOp::kRead, StreamOp::kWrite, StreamOp::kCopy, StreamOp::kTriad),
                         name_of);

TEST(HostStream, StoresBypassTheCachesOnX86Alone) {
  utsname system{};
  ASSERT_EQ(uname(&system), 0);
  EXPECT_EQ(stores_bypass_caches(), std::string(system.machine) == "x86_64");
}

TEST(HostStream, MoreMemoryThanThereIsThrows) {
  if (allocator_in_use().ends_with("Sanitizer")) GTEST_SKIP() << "sanitizers end the program instead";
  EXPECT_THROW(HostStream(StreamOp::kRead, std::size_t{1} << 60, 1), std::bad_alloc);
}

}  // namespace
}  // namespace gpulift
