#include "workloads/matmul.hpp"

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(PrecisionMatmul, EveryShapeAndArmIsReadable) {
  for (const Value& shape : technique->sweep.at(0).values) {
    EXPECT_NO_THROW(parse_matmul_shape(std::get<std::string>(shape)));
  }
  for (const std::string& arm : technique->arms) EXPECT_NO_THROW(parse_matmul_type(arm));
}

using PrecisionMatmulOnDevice = DeviceTest;

TEST_F(PrecisionMatmulOnDevice, ArmsDoTheSameWorkWithTheErrorOfTheirFormat) {
  const CheckingTrial trial(*technique, device(), {{"shape", "1024x1024x1024"}, {"regime", "burst"}});
  const double baseline_error = trial.results().at("fp32").error;
  for (const auto& [name, arm] : trial.results()) {
    if (!arm.unavailable.empty()) continue;
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_EQ(arm.cost.flops, 2.0 * 1024 * 1024 * 1024) << name;
    EXPECT_EQ(arm.error > 20 * baseline_error, name != "fp32") << name;
  }
}

}  // namespace
}  // namespace gpulift
