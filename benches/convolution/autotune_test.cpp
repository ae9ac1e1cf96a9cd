#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using ConvolutionAutotuneOnDevice = DeviceTest;

TEST_F(ConvolutionAutotuneOnDevice, AllArmsGiveTheSameAndTheSearchIsToldAndRemembered) {
  const Point point{{"layer", std::string("conv4_3x3")}, {"pass", std::string("filter_gradient")}, {"regime", "burst"}};
  const CheckingTrial first(*technique, device(), point);
  for (const auto& [name, arm] : first.results()) {
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_GT(arm.error, 0) << name;
  }
  const Metrics& metrics = first.results().at("measured").metrics;
  EXPECT_GT(metrics.at("timed_plans"), 1);
  EXPECT_GT(metrics.at("search_s"), 0);
  if (metrics.contains("break_even_steps")) {
    EXPECT_GT(metrics.at("break_even_steps"), 0);
  }
  const CheckingTrial second(*technique, device(), point, first.notes());
  EXPECT_EQ(second.notes(), first.notes()) << "searched again";
}

}  // namespace
}  // namespace gpulift
