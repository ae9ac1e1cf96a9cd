#include <gtest/gtest.h>

#include "benches/module_under_test.hpp"
#include "core/harness/host_cache.hpp"
#include "core/testing/host_checking_trial.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(HostMemory, EveryLoopIsCheckedAndMovesTheSameBytesUnderTheHostRoof) {
  const auto cache_bytes = last_level_cache_bytes();
  if (!cache_bytes) GTEST_SKIP() << "the system does not say how large its last-level cache is";
  const HostCheckingTrial trial(*technique, {{"size", "4xLLC"}}, HostCheckingTrial::Steps::kThree);
  for (const auto& result : trial.results()) {
    EXPECT_FALSE(result.poisoned_error <= result.tolerance) << result.arm.name << " passes without having run";
    EXPECT_EQ(result.error, 0) << result.arm.name;
    EXPECT_EQ(result.later_error, 0) << result.arm.name;
    ASSERT_TRUE(result.arm.cost) << result.arm.name;
    EXPECT_EQ(result.arm.cost->roof, "host_memory");
    EXPECT_EQ(std::to_string(static_cast<std::size_t>(result.arm.cost->bytes)), trial.notes().at("footprint_bytes"));
    EXPECT_NEAR(result.arm.cost->bytes, 4.0 * static_cast<double>(*cache_bytes), 384);
    EXPECT_EQ(result.arm.clock, Clock::kHost);
  }
}

}  // namespace
}  // namespace gpulift
