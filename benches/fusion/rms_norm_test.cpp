#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "kernels/layer_norm.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(FusionRmsNorm, ItsWidthsAreThoseOfTheKernel) {
  for (const Value& width : technique->sweep.at(1).values) {
    const auto columns = static_cast<int>(std::get<std::int64_t>(width));
    EXPECT_NO_THROW(norm_forward({.rows = 0, .columns = columns, .norm = Norm::kRms}, {}, nullptr)) << columns;
  }
}

class FusionRmsNormOnDevice : public DeviceTest {
 protected:
  static Point point(std::int64_t rows, std::int64_t width) { return {{"rows", rows}, {"width", width}}; }
};

TEST_F(FusionRmsNormOnDevice, BothArmsAreThoseOfDoublePrecision) {
  for (const std::int64_t width : {768, 4096, 8192}) {
    CheckingTrial trial(device(), point(13, width));
    technique->run(trial);
    ASSERT_EQ(trial.results().size(), technique->arms.size());
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_LE(arm.error, arm.tolerance) << width << " " << name;
      EXPECT_GT(arm.error, 0) << "BF16 rounds: " << width << " " << name;
      EXPECT_EQ(arm.cost.bytes, 2.0 * 2 * 13 * static_cast<double>(width)) << name;
      EXPECT_EQ(arm.cost.roof, "") << name << " finds its data in the cache";
    }
    EXPECT_LT(trial.results().at("fused").error, 1.0 / 128) << width;
    EXPECT_EQ(trial.results().at("fused").peak_device_bytes, 0);
    EXPECT_EQ(trial.results().at("op_by_op").peak_device_bytes, static_cast<std::size_t>(2 * 13 * width + 4 * 13));
  }
}

TEST_F(FusionRmsNormOnDevice, ManyRowsAreMeasuredAgainstTheRoofOfMemory) {
  CheckingTrial trial(device(), point(16384, 4096));
  technique->run(trial);
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_EQ(arm.cost.roof, "device_memory") << name;
  }
}

}  // namespace
}  // namespace gpulift
