#include "benches/checking_trial.hpp"
#include "benches/module_under_test.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class PersistingL2 : public DeviceTest {
 protected:
  static std::size_t set_aside_bytes() {
    std::size_t bytes = 0;
    check(cudaDeviceGetLimit(&bytes, cudaLimitPersistingL2CacheSize));
    return bytes;
  }
};

TEST_F(PersistingL2, EveryArmReadsEveryWordAndLeavesTheCacheAsItWas) {
  const std::size_t before = set_aside_bytes();
  CheckingTrial trial(device(), {{"working_set_mib", std::int64_t{3}}});  // does not divide the traffic
  technique->run(trial);
  ASSERT_EQ(trial.results().size(), technique->arms.size());
  for (const auto& [name, arm] : trial.results()) {
    if (trial.notes().at("set_aside_bytes") == "0" && name.starts_with("persisting")) {
      EXPECT_NE(arm.unavailable.find("compute capability 8.0"), std::string::npos);
    } else {
      EXPECT_EQ(arm.unavailable, "") << name;
    }
    EXPECT_EQ(arm.error, 0) << name;
  }
  EXPECT_EQ(set_aside_bytes(), before);
}

}  // namespace
}  // namespace gpulift
