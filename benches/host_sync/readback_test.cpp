#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using Readback = DeviceTest;

TEST_F(Readback, EveryArmSeesTheLossesOfItsSteps) {
  for (const char* bound : {"launches", "device"}) {
    const CheckingTrial trial(*technique, device(), {{"bound_by", bound}});
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_EQ(arm.error, 0) << name << ", bound by: " << bound;
      EXPECT_EQ(arm.cost.items, 100) << name;
    }
  }
}

}  // namespace
}  // namespace gpulift
