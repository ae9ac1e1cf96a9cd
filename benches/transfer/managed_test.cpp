#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class Managed : public DeviceTest {
 protected:
  static Point point(std::int64_t bytes) { return {{"passes", std::int64_t{2}}, {"bytes", bytes}}; }
};

TEST_F(Managed, EveryArmReadsWhatTheHostWrote) {
  const CheckingTrial trial(*technique, device(), point(1 << 20));
  int concurrent = 0;
  check(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
  for (const auto& [name, arm] : trial.results()) {
    const bool skipped = concurrent == 0 && name.starts_with("managed");
    EXPECT_EQ(!arm.unavailable.empty(), skipped) << name << ": " << arm.unavailable;
    EXPECT_EQ(arm.error, 0) << name;
  }
}

TEST_F(Managed, IsSkippedWhereItWouldTakeMoreThanIsFree) {
  const auto all = static_cast<std::int64_t>(device().memory_bytes());
  EXPECT_THROW(CheckingTrial(*technique, device(), point(all)), std::runtime_error);
  EXPECT_EQ(device().memory().peak_bytes(), 0U);
}

}  // namespace
}  // namespace gpulift
