#include <gtest/gtest.h>

#include "benches/module_under_test.hpp"
#include "core/testing/host_checking_trial.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(HostGemm, EveryFormatThatTheProcessorHasIsCheckedUnderItsOwnRoof) {
  const HostCheckingTrial trial(*technique, {{"n", 64}}, HostCheckingTrial::Steps::kThree);
  EXPECT_EQ(trial.results().front().arm.unavailable, "") << "every processor multiplies in FP32";
  for (const auto& result : trial.results()) {
    ASSERT_TRUE(result.arm.cost) << result.arm.name;
    EXPECT_EQ(result.arm.cost->roof, "host_gemm/" + result.arm.name);
    EXPECT_EQ(result.arm.cost->flops, 2.0 * 64 * 64 * 64);
    if (!result.arm.unavailable.empty()) continue;
    EXPECT_FALSE(result.poisoned_error <= result.tolerance) << result.arm.name << " passes without having run";
    EXPECT_LE(result.error, result.tolerance) << result.arm.name;
    EXPECT_GT(result.error, 0) << result.arm.name << " is not rounded: it was computed in FP64";
    EXPECT_LE(result.later_error, result.tolerance) << result.arm.name;
  }
}

}  // namespace
}  // namespace gpulift
