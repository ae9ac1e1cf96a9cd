#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using ParallelCopies = DeviceTest;

TEST_F(ParallelCopies, EveryArmDeliversBothBatches) {
  const CheckingTrial trial(*technique, device(), {{"bytes", std::int64_t{4096}}});
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_EQ(arm.error, 0) << name;
    EXPECT_EQ(arm.cost.bytes, 2 * 4096) << name;
  }
}

}  // namespace
}  // namespace gpulift
