#include <cstdint>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/causal_softmax.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(AttentionFused, NoRowIsLongerThanTheSoftmaxTakes) {
  for (const Value& tokens : technique->sweep.at(1).values) {
    EXPECT_LE(std::get<std::int64_t>(tokens), kMostSoftmaxColumns);
  }
}

using AttentionFusedOnDevice = DeviceTest;

TEST_F(AttentionFusedOnDevice, BothFormsGiveTheSameAndTheFusedOneKeepsNoScores) {
  for (const std::int64_t width : {64, 128}) {
    CheckingTrial trial(device(), {{"head_width", width}, {"tokens", std::int64_t{2048}}, {"regime", "burst"}});
    technique->run(trial);
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_EQ(arm.unavailable, "") << name;
      EXPECT_LE(arm.error, arm.tolerance) << name;
      EXPECT_GT(arm.error, 1e-4) << name;
      EXPECT_EQ(arm.cost.flops, 6.0 * 16384 * 2048 * 2048) << name;
    }
    const double scores_bytes = 2.0 * 2 * 16384 * 2048 * 2048 / static_cast<double>(width);
    EXPECT_GT(static_cast<double>(trial.results().at("separate").peak_device_bytes), scores_bytes);
    EXPECT_LT(static_cast<double>(trial.results().at("fused").peak_device_bytes), scores_bytes / 2);
  }
}

}  // namespace
}  // namespace gpulift
