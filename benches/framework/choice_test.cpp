#include <gtest/gtest.h>

#include "benches/module_under_test.hpp"
#include "core/testing/host_checking_trial.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(FrameworkChoice, CountsTheSameWorkForEveryFramework) {
  const HostCheckingTrial trial(*technique, {{"model", "gpt_toy"}});
  const auto& cpp = trial.results().back();
  for (const auto& result : trial.results()) {
    EXPECT_EQ(result.arm.cost.value().flops, cpp.arm.cost.value().flops) << result.arm.name;
  }
}

}  // namespace
}  // namespace gpulift
