#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using FusionGemmEpilogueOnDevice = DeviceTest;

TEST(FusionGemmEpilogue, FeaturesOfEveryShapeSuitPacksAndWhatIsKept) {
  for (const Value& value : technique->sweep.at(0).values) {
    EXPECT_EQ(parse_matmul_shape(std::get<std::string>(value)).m % 8, 0);
  }
  EXPECT_EQ(technique->arms.front(), "torch");
}

TEST_F(FusionGemmEpilogueOnDevice, ArmsGiveTheSameActivationsAndALaterLaunchReusesTheirPlans) {
  CheckingTrial first(device(), {{"shape", "1024x64x256"}, {"regime", "burst"}});
  technique->run(first);
  ASSERT_EQ(first.results().size(), technique->arms.size());
  for (const auto& [name, arm] : first.results()) {
    if (!arm.unavailable.empty()) continue;
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_EQ(arm.cost.flops, 2.0 * 1024 * 64 * 256) << name;
  }
  const auto& kept = first.results().at("epilogue_kept");
  const auto& lean = first.results().at("epilogue");
  if (kept.unavailable.empty() && lean.unavailable.empty()) {
    EXPECT_GT(kept.peak_device_bytes, lean.peak_device_bytes);
  }
  CheckingTrial second(device(), {{"shape", "1024x64x256"}, {"regime", "burst"}}, first.notes());
  technique->run(second);
  EXPECT_EQ(second.notes(), first.notes());
}

}  // namespace
}  // namespace gpulift
