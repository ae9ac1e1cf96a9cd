#include "workloads/memory_roof.hpp"

#include <gtest/gtest.h>

namespace gpulift {
namespace {

constexpr std::size_t kL2Bytes = 50'000'000;

TEST(MemoryRoof, IsDeviceMemoryWhereTheCacheKeepsNothing) { EXPECT_EQ(memory_roof(kL2Bytes, 151e6), "device_memory"); }

TEST(MemoryRoof, IsNoneWhereTheCacheMayKeepSome) {
  EXPECT_EQ(memory_roof(kL2Bytes, 0), "");
  EXPECT_EQ(memory_roof(kL2Bytes, 150e6), "");
}

}  // namespace
}  // namespace gpulift
