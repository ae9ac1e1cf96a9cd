#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class GradientNorm : public DeviceTest {};

TEST_F(GradientNorm, EveryArmHasAllNormsOfDoublePrecision) {
  CheckingTrial trial(device(), {{"model", "small"}});
  technique->run(trial);
  ASSERT_EQ(trial.results().size(), technique->arms.size());
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_GT(arm.error, 0) << "FP32 rounds: " << name;
    EXPECT_EQ(arm.cost.bytes, 2.0 * 875'264) << name;
    EXPECT_EQ(arm.cost.roof, "") << name << " finds its data in the cache";
  }
  EXPECT_EQ(trial.results().at("together").peak_device_bytes, 0);
  EXPECT_GT(trial.results().at("cub").peak_device_bytes, 0);
}

}  // namespace
}  // namespace gpulift
