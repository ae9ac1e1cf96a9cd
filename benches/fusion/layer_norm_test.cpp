#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class FusionLayerNorm : public DeviceTest {
 protected:
  static Point point(const std::string& pass, const std::string& norm, std::int64_t rows = 130) {
    return {{"pass", pass}, {"norm", norm}, {"rows", rows}};
  }
};

TEST_F(FusionLayerNorm, EveryArmIsThatOfDoublePrecision) {
  for (const char* pass : {"forward", "backward"}) {
    for (const char* norm : {"layer_norm", "rms_norm"}) {
      CheckingTrial trial(device(), point(pass, norm));
      technique->run(trial);
      ASSERT_EQ(trial.results().size(), technique->arms.size());
      for (const auto& [name, arm] : trial.results()) {
        EXPECT_LE(arm.error, arm.tolerance) << pass << " " << norm << " " << name;
        EXPECT_GT(arm.error, 0) << "BF16 rounds: " << pass << " " << norm << " " << name;
        EXPECT_EQ(arm.cost.bytes, 4 * 2 * 130 * 768) << name;
        EXPECT_EQ(arm.cost.roof, "") << name << " finds its data in the cache";
      }
      EXPECT_LT(trial.results().at("fused").error, 1.0 / 128) << pass << " " << norm;
    }
  }
}

TEST_F(FusionLayerNorm, ManyRowsAreMeasuredAgainstTheRoofOfMemory) {
  const std::int64_t rows = std::get<std::int64_t>(technique->sweep.back().values.back());
  for (const char* pass : {"forward", "backward"}) {
    CheckingTrial trial(device(), point(pass, "layer_norm", rows));
    technique->run(trial);
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_LE(arm.error, arm.tolerance) << pass << " " << name;
      EXPECT_EQ(arm.cost.roof, "device_memory") << pass << " " << name;
    }
  }
}

TEST_F(FusionLayerNorm, FusedNeedsNoMemoryForStepsInBetween) {
  CheckingTrial trial(device(), point("backward", "layer_norm"));
  technique->run(trial);
  EXPECT_EQ(trial.results().at("fused").peak_device_bytes, 0);
  EXPECT_EQ(trial.results().at("norm_kernel").peak_device_bytes, 2 * 130 * 768);
  EXPECT_EQ(trial.results().at("op_by_op").peak_device_bytes, 3 * 2 * 130 * 768 + 2 * 4 * 130);
}

}  // namespace
}  // namespace gpulift
