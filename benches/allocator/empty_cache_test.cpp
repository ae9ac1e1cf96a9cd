#include <gtest/gtest.h>

#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "core/testing/host_checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

const Point kPoint{{"model", std::string("encoder_toy")}};

TEST(EmptyCache, ChangesNoLossAndSingleStepsAreTimed) {
  const HostCheckingTrial trial(*technique, kPoint);
  for (const auto& result : trial.results()) {
    EXPECT_EQ(result.error, 0) << result.arm.name;
    EXPECT_EQ(result.tolerance, 0);
    const Step step = result.arm.make().step();
    step(nullptr);
    const Metrics metrics = result.arm.metrics(step, nullptr);
    EXPECT_GT(metrics.at("step_p50_s"), 0) << result.arm.name;
    EXPECT_GE(metrics.at("step_p99_s"), metrics.at("step_p50_s"));
    EXPECT_GT(metrics.at("loss"), 0);
  }
}

class EmptyCacheOnDevice : public DeviceTest {};

TEST_F(EmptyCacheOnDevice, GivesTheSameLosses) {
  const CheckingTrial trial(*technique, device(), kPoint);
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_GT(arm.metrics.at("peak_reserved_bytes"), 0) << name;
  }
}

}  // namespace
}  // namespace gpulift
