#include <gtest/gtest.h>

#include "benches/module_under_test.hpp"
#include "core/testing/host_checking_trial.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(FrameworkChoice, CountsTheSameWorkForEveryFramework) {
  HostCheckingTrial trial(Point{{"model", std::string("gpt_toy")}});
  technique->run(trial);
  ASSERT_EQ(trial.results().size(), 4U);
  const auto& cpp = trial.results().back();
  EXPECT_LE(cpp.error, cpp.tolerance);
  for (const auto& result : trial.results()) {
    EXPECT_EQ(result.arm.cost.value().flops, cpp.arm.cost.value().flops) << result.arm.name;
  }
}

TEST(FrameworkChoice, SkipsLargeModelsWithoutAGpu) {
  HostCheckingTrial trial(Point{{"model", std::string("resnet50")}});
  EXPECT_THROW(technique->run(trial), std::runtime_error);
}

}  // namespace
}  // namespace gpulift
