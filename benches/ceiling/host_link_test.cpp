#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class HostLink : public DeviceTest {};

TEST_F(HostLink, EachDirectionCountsForItsOwnRoof) {
  constexpr std::int64_t kBytes = std::int64_t{4} << 20;
  const CheckingTrial trial(*technique, device(), {{"bytes", kBytes}});
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_EQ(arm.cost.roof, "host_link/" + name);
    EXPECT_EQ(arm.cost.bytes, name == "both" ? 2 * kBytes : kBytes) << name;
  }
}

}  // namespace
}  // namespace gpulift
