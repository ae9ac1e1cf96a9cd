#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using ConvolutionLayoutOnDevice = DeviceTest;

TEST_F(ConvolutionLayoutOnDevice, BothArmsGiveTheSameAndAreFoundAgain) {
  for (const char* pass : {"forward", "data_gradient", "filter_gradient"}) {
    const Point point{{"layer", std::string("conv5_3x3")},
                      {"pass", std::string(pass)},
                      {"type", std::string("fp16")},
                      {"regime", "burst"}};
    const CheckingTrial first(*technique, device(), point);
    for (const auto& [name, arm] : first.results()) {
      EXPECT_EQ(arm.unavailable, "") << name;
      EXPECT_LE(arm.error, arm.tolerance) << name;
      EXPECT_GT(arm.error, 0) << name;
      EXPECT_EQ(arm.cost.flops, 2.0 * 32 * 7 * 7 * 512 * 512 * 9);
    }
    const CheckingTrial second(*technique, device(), point, first.notes());
    EXPECT_EQ(second.notes(), first.notes()) << "searched again";
  }
}

}  // namespace
}  // namespace gpulift
