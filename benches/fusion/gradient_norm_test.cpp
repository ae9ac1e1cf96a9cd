#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class GradientNorm : public DeviceTest {};

TEST_F(GradientNorm, TogetherHasAllNormsOfDoublePrecision) {
  const CheckingTrial trial(*technique, device(), {{"model", "small"}});
  const auto& together = trial.results().at("together");
  EXPECT_LE(together.error, together.tolerance);
  EXPECT_GT(together.error, 0) << "FP32 rounds";
  EXPECT_EQ(together.cost.bytes, 2.0 * 875'264);
  EXPECT_EQ(together.cost.roof, "") << "the cache has its data";
  EXPECT_EQ(together.peak_device_bytes, 0);
}

}  // namespace
}  // namespace gpulift
