#include <gtest/gtest.h>

#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/host_checking_trial.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(EmptyCache, ChangesNoLossAndSingleStepsAreTimed) {
  const HostCheckingTrial trial(*technique, {{"model", "encoder_toy"}});
  for (const auto& result : trial.results()) {
    EXPECT_EQ(result.error, 0) << result.arm.name;  // which the contract sees on a GPU alone
    const Step step = result.arm.make().step();
    step(nullptr);
    const Metrics metrics = result.arm.metrics(step, nullptr);
    EXPECT_GT(metrics.at("step_p50_s"), 0) << result.arm.name;
    EXPECT_GE(metrics.at("step_p99_s"), metrics.at("step_p50_s"));
    EXPECT_GT(metrics.at("loss"), 0);
  }
}

}  // namespace
}  // namespace gpulift
