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

TEST_F(FusionGemmEpilogueOnDevice, OneArmKeepsMore) {
  const CheckingTrial trial(*technique, device(), {{"shape", "1024x64x256"}, {"regime", "burst"}});
  const auto& kept = trial.results().at("epilogue_kept");
  const auto& lean = trial.results().at("epilogue");
  if (kept.unavailable.empty() && lean.unavailable.empty()) {
    EXPECT_GT(kept.peak_device_bytes, lean.peak_device_bytes);
  }
}

}  // namespace
}  // namespace gpulift
