#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class PinnedCopy : public DeviceTest {
 protected:
  static Point point(const char* direction, std::int64_t bytes) { return {{"direction", direction}, {"bytes", bytes}}; }
};

TEST_F(PinnedCopy, EveryArmDeliversTheSameBytesEachWay) {
  for (const char* direction : {"h2d", "d2h"}) {
    for (const std::int64_t bytes : {4096, 1 << 20}) {
      const CheckingTrial trial(*technique, device(), point(direction, bytes));
      for (const auto& [name, arm] : trial.results()) {
        EXPECT_EQ(arm.error, 0) << name << " " << direction << " " << bytes;
        EXPECT_EQ(arm.cost.bytes, bytes) << name;
        EXPECT_EQ(arm.cost.roof, std::string("host_link/") + direction) << name;
      }
    }
  }
}

TEST_F(PinnedCopy, LeavesNoMemoryLocked) {
  const CheckingTrial trial(*technique, device(), point("h2d", 4096));
  EXPECT_GT(device().pinned_memory().peak_bytes(), 0);
  EXPECT_EQ(device().pinned_memory().live_bytes(), 0);
  EXPECT_EQ(device().memory().live_bytes(), 0);
}

}  // namespace
}  // namespace gpulift
