#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using PrecisionFp8ScalingOnDevice = DeviceTest;

TEST(PrecisionFp8Scaling, TilesOf128DivideEverySize) {
  for (const Value& size : technique->sweep.at(0).values) EXPECT_EQ(std::get<std::int64_t>(size) % 128, 0);
}

TEST_F(PrecisionFp8ScalingOnDevice, ArmsHaveTheErrorOfTheirFormatOrAReason) {
  const CheckingTrial trial(*technique, device(), {{"size", std::int64_t{1024}}, {"regime", "burst"}});
  const double baseline_error = trial.results().at("bf16").error;
  for (const auto& [name, arm] : trial.results()) {
    if (!arm.unavailable.empty()) continue;
    EXPECT_EQ(arm.error > 5 * baseline_error, name != "bf16") << name;
    EXPECT_EQ(arm.cost.flops, 2.0 * 1024 * 1024 * 1024) << name;
    EXPECT_EQ(arm.cost.roof, name == "bf16" ? "gemm/bf16" : name == "nvfp4" ? "" : "gemm/fp8") << name;
  }
  EXPECT_EQ(trial.results().at("fp8_row").unavailable.empty(), device().architecture() == 90);
  for (const char* name : {"mxfp8", "nvfp4"}) {
    EXPECT_EQ(trial.results().at(name).unavailable.empty(), device().architecture() >= 100) << name;
  }
}

}  // namespace
}  // namespace gpulift
