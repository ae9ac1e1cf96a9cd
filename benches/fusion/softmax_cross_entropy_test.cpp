#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class FusionSoftmaxCrossEntropy : public DeviceTest {};

TEST_F(FusionSoftmaxCrossEntropy, OurKernelIsThatOfDoublePrecisionWhereARowIsHeldAndWhereNot) {
  for (const std::int64_t classes : {50257, 128256}) {
    const CheckingTrial trial(*technique, device(), {{"tokens", std::int64_t{3}}, {"classes", classes}});
    const auto& fused = trial.results().at("fused");
    EXPECT_LE(fused.error, fused.tolerance) << classes;
    EXPECT_GT(fused.error, 0) << "BF16 rounds: " << classes;
    EXPECT_EQ(fused.cost.bytes, 2.0 * 2 * 3 * static_cast<double>(classes));
    EXPECT_EQ(fused.cost.roof, "") << "the cache has its data";
    EXPECT_EQ(fused.peak_device_bytes, 0);
    EXPECT_TRUE(trial.notes().contains("row_held"));
  }
}

}  // namespace
}  // namespace gpulift
