#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using Priorities = DeviceTest;

TEST_F(Priorities, EveryRequestIsServedWhileTheBackgroundRuns) {  // the step throws where it does not
  const CheckingTrial trial(*technique, device(), {{"block_us", std::int64_t{100}}});
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_EQ(arm.error, 0) << name;
    EXPECT_EQ(arm.cost.items, 40) << name;
  }
}

}  // namespace
}  // namespace gpulift
