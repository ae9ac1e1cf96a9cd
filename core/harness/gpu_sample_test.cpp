#include "gpu_sample.hpp"

#include <gtest/gtest.h>

namespace gpulift {
namespace {

using Names = std::vector<std::string>;

TEST(ThrottleReasons, AnIdleCardIsNotThrottled) { EXPECT_EQ(throttle_names(0x1), Names{}); }

TEST(ThrottleReasons, AreNamedInTheOrderOfTheirBits) {
  EXPECT_EQ(throttle_names(0x44), (Names{"sw_power_cap", "hw_thermal_slowdown"}));
}

TEST(ThrottleReasons, UnknownBitsAreKept) {
  EXPECT_EQ(throttle_names(0x10004), (Names{"sw_power_cap", "other_0x10000"}));
}

TEST(ThrottleReasons, HardwareSlowdownIsToldFromSoftwareLimits) {
  for (const auto bit : {0x8ULL, 0x40ULL, 0x80ULL}) EXPECT_TRUE(is_hardware_slowdown(bit | 0x4)) << bit;
  for (const auto bit : {0x0ULL, 0x1ULL, 0x2ULL, 0x4ULL, 0x10ULL, 0x20ULL, 0x100ULL}) {
    EXPECT_FALSE(is_hardware_slowdown(bit)) << bit;
  }
}

}  // namespace
}  // namespace gpulift
