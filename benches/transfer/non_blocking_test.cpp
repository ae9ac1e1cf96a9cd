#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using NonBlocking = DeviceTest;

TEST_F(NonBlocking, LeavesNoMemoryLocked) {
  const CheckingTrial trial(*technique, device(), {{"queued_first", "copy"}, {"bytes", std::int64_t{1} << 16}});
  EXPECT_GT(device().pinned_memory().peak_bytes(), 0);
  EXPECT_EQ(device().pinned_memory().live_bytes(), 0);
}

}  // namespace
}  // namespace gpulift
