#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using KeepOnDevice = DeviceTest;

TEST_F(KeepOnDevice, BothArmsComputeTheSameAndSayWhatBoundsThem) {
  for (const std::int64_t bytes : {4000, 1 << 20}) {
    const CheckingTrial trial(*technique, device(), {{"bytes", bytes}});
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_EQ(arm.error, 0) << name << ", bytes: " << bytes;
      EXPECT_EQ(arm.cost.bytes, 2.0 * static_cast<double>(bytes)) << name;
    }
    EXPECT_EQ(trial.results().at("round_trip").cost.roof, "host_link/both");
    EXPECT_EQ(trial.results().at("resident").cost.roof, "") << "it finds its data in the cache";
  }
}

}  // namespace
}  // namespace gpulift
