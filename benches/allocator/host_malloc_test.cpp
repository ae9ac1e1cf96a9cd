#include <gtest/gtest.h>

#include "benches/module_under_test.hpp"
#include "core/testing/host_checking_trial.hpp"
#include "workloads/host/allocator_in_use.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

const HostCheckingTrial::ArmResult& arm(const HostCheckingTrial& trial, const std::string& name) {
  for (const auto& result : trial.results()) {
    if (result.arm.name == name) return result;
  }
  throw std::logic_error("no arm " + name);
}

class HostMalloc : public testing::TestWithParam<Point> {};

TEST_P(HostMalloc, TheBaselineIsExactAndIsFoundWhenItDoesNothing) {
  if (allocator_in_use() != "libc") GTEST_SKIP() << "malloc() is " << allocator_in_use() << "'s in this process";
  const HostCheckingTrial trial(*technique, GetParam(), HostCheckingTrial::Steps::kThree);
  const auto glibc = arm(trial, "glibc");
  EXPECT_EQ(glibc.not_made, "");
  EXPECT_GT(glibc.poisoned_error, 0);
  EXPECT_EQ(glibc.error, 0);
  EXPECT_EQ(glibc.later_error, 0);
  EXPECT_GT(trial.trial_cost().items, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, HostMalloc,
                         testing::Values(Point{{"threads", "one"}, {"blocks", "collate"}},
                                         Point{{"threads", "all_cores"}, {"blocks", "metadata"}},
                                         Point{{"threads", "all_cores"}, {"blocks", "images"}}));

TEST(HostMallocArms, RefuseToRunUnderAnotherAllocator) {
  const HostCheckingTrial trial(*technique, {{"threads", "one"}, {"blocks", "tokens"}});
  for (const auto& result : trial.results()) {
    const auto expected = result.arm.name == "glibc" ? "libc" : result.arm.name;
    if (expected == allocator_in_use()) continue;
    EXPECT_EQ(result.not_made, "malloc() is " + allocator_in_use() + "'s here, not " + expected + "'s");
  }
}

TEST(HostMallocArms, AreProcessesOfTheirOwnWithAPreloadAndARemedy) {
  const HostCheckingTrial trial(*technique, {{"threads", "one"}, {"blocks", "tokens"}});
  for (const auto& result : trial.results()) {
    ASSERT_TRUE(result.arm.worker) << result.arm.name;
    EXPECT_EQ(result.arm.worker->preload.empty(), result.arm.name == "glibc");
    EXPECT_EQ(result.arm.worker->remedy.empty(), result.arm.name == "glibc");
  }
}

}  // namespace
}  // namespace gpulift
