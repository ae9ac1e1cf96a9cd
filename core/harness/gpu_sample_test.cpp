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

}  // namespace
}  // namespace gpulift
