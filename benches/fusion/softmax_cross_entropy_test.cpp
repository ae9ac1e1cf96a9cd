#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class FusionSoftmaxCrossEntropy : public DeviceTest {};

TEST_F(FusionSoftmaxCrossEntropy, BothArmsAreThoseOfDoublePrecision) {
  constexpr std::int64_t kTokens = 3;
  constexpr std::int64_t kMatrixBytes = kTokens * 50257 * 2;
  CheckingTrial trial(device(), {{"tokens", kTokens}});
  technique->run(trial);
  ASSERT_EQ(trial.results().size(), 2);
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_GT(arm.error, 0) << "BF16 rounds: " << name;
    EXPECT_EQ(arm.cost.bytes, 2 * kMatrixBytes) << name;
    EXPECT_EQ(arm.cost.roof, "") << name << " finds its data in the cache";
  }
  EXPECT_LT(trial.results().at("fused").error, 1.0 / 128);
  EXPECT_EQ(trial.results().at("fused").peak_device_bytes, 0);
  EXPECT_EQ(trial.results().at("op_by_op").peak_device_bytes, kMatrixBytes + 3 * 4 * kTokens);
  EXPECT_TRUE(trial.notes().contains("row_held"));
}

}  // namespace
}  // namespace gpulift
