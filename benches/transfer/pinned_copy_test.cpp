#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using PinnedCopy = DeviceTest;

TEST_F(PinnedCopy, LeavesNoMemoryLocked) {
  const CheckingTrial trial(*technique, device(), {{"direction", "h2d"}, {"bytes", std::int64_t{4096}}});
  EXPECT_GT(device().pinned_memory().peak_bytes(), 0);
  EXPECT_EQ(device().pinned_memory().live_bytes(), 0);
  EXPECT_EQ(device().memory().live_bytes(), 0);
}

}  // namespace
}  // namespace gpulift
