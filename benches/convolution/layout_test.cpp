#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using ConvolutionLayoutOnDevice = DeviceTest;

TEST_F(ConvolutionLayoutOnDevice, WhatASearchFoundIsTakenAgain) {
  for (const char* pass : {"forward", "data_gradient", "filter_gradient"}) {
    const Point point{{"layer", std::string("conv5_3x3")},
                      {"pass", std::string(pass)},
                      {"type", std::string("fp16")},
                      {"regime", "burst"}};
    const CheckingTrial first(*technique, device(), point);
    const CheckingTrial second(*technique, device(), point, first.notes());
    EXPECT_EQ(second.notes(), first.notes()) << "searched again";
  }
}

}  // namespace
}  // namespace gpulift
