#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using Concurrent = DeviceTest;

TEST_F(Concurrent, EveryKernelOfEveryArmWritesItsOutput) {
  for (const char* kernel : {"one_block_2_us", "whole_device_50_us"}) {
    const CheckingTrial trial(*technique, device(), {{"kernel", kernel}});
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_EQ(arm.error, 0) << name << ", " << kernel;
      EXPECT_EQ(arm.cost.items, 64) << name;
      EXPECT_GT(arm.cost.flops, 0) << name;
    }
  }
}

}  // namespace
}  // namespace gpulift
