#include <gtest/gtest.h>

#include "benches/host_checking_trial.hpp"
#include "benches/module_under_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(FrameworkChoice, CountsTheSameWorkForEveryFramework) {
  HostCheckingTrial trial(Point{{"model", std::string("gpt_toy")}});
  technique->run(trial);
  ASSERT_EQ(trial.results().size(), 4U);
  const auto& baseline = trial.results().front();
  EXPECT_LE(baseline.error, baseline.tolerance);
  for (const auto& result : trial.results()) {
    EXPECT_EQ(result.arm.cost.value().flops, baseline.arm.cost.value().flops) << result.arm.name;
  }
}

TEST(FrameworkChoice, SkipsLargeModelsWithoutAGpu) {
  HostCheckingTrial trial(Point{{"model", std::string("resnet50")}});
  EXPECT_THROW(technique->run(trial), std::runtime_error);
}

}  // namespace
}  // namespace gpulift
