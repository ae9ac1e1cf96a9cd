#include <gtest/gtest.h>

#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/host_checking_trial.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

const Point kPoint{{"model", std::string("encoder_toy")}};

TEST(CachingAllocator, EveryArmIsAWorkerWithADeviceAndAnAllocatorOfItsOwn) {
  const HostCheckingTrial trial(*technique, kPoint);
  for (const auto& result : trial.results()) {
    ASSERT_TRUE(result.arm.worker.has_value());
    EXPECT_TRUE(result.arm.worker->device);
    EXPECT_FALSE(result.arm.worker->environment.empty());
    // This process has torch's default; what is not what it says must not be measured.
    const bool is_default = result.arm.name == "caching";
    EXPECT_EQ(result.not_made, is_default ? "" : "torch's allocator is caching here, not " + result.arm.name);
  }
}

TEST(CachingAllocator, LossesAreCheckedExactlyOnAHost) {
  const HostCheckingTrial trial(*technique, kPoint, HostCheckingTrial::Steps::kThree);
  const auto& caching = trial.results().front();
  EXPECT_EQ(caching.tolerance, 0);
  EXPECT_EQ(caching.error, 0);
  EXPECT_FALSE(caching.poisoned_error <= caching.tolerance);  // nothing was trained
  EXPECT_FALSE(caching.later_error <= caching.tolerance);     // other losses than the first
}

}  // namespace
}  // namespace gpulift
