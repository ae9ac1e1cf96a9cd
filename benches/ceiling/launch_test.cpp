#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class Launch : public DeviceTest {};

TEST_F(Launch, EveryArmLaunchesAsManyKernelsAsItCounts) {
  for (const std::int64_t launches : {1, 200}) {
    const CheckingTrial trial(*technique, device(), {{"launches", launches}});
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_EQ(arm.error, 0) << name;
      EXPECT_EQ(arm.cost.items, launches) << name;
    }
  }
}

}  // namespace
}  // namespace gpulift
