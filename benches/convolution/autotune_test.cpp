#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using ConvolutionAutotuneOnDevice = DeviceTest;

TEST_F(ConvolutionAutotuneOnDevice, TheSearchIsToldAndRemembered) {
  const Point point{{"layer", std::string("conv4_3x3")}, {"pass", std::string("filter_gradient")}, {"regime", "burst"}};
  const CheckingTrial first(*technique, device(), point);
  const Metrics& metrics = first.results().at("measured").metrics;
  EXPECT_GT(metrics.at("timed_plans"), 1);
  EXPECT_GT(metrics.at("search_s"), 0);
  const CheckingTrial second(*technique, device(), point, first.notes());
  EXPECT_EQ(second.notes(), first.notes()) << "searched again";
}

}  // namespace
}  // namespace gpulift
