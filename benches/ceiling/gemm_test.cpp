#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(CeilingGemm, EveryArmIsAMatmulTypeThatIsARoof) {
  EXPECT_TRUE(technique->ceiling);
  for (const std::string& arm : technique->arms) EXPECT_EQ(matmul_type_name(parse_matmul_type(arm)), arm);
}

TEST(CeilingGemm, SustainedIsTooLongToBeQuick) {
  ASSERT_EQ(technique->quick.size(), 1u);
  EXPECT_EQ(technique->quick[0], (Point{{"regime", "burst"}}));
}

using CeilingGemmOnDevice = DeviceTest;

TEST_F(CeilingGemmOnDevice, ArmsAreRightAndALaterLaunchReusesTheirPlans) {
  const CheckingTrial first(*technique, device(), {{"regime", "burst"}});
  for (const auto& [name, arm] : first.results()) {
    if (!arm.unavailable.empty()) continue;
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_EQ(arm.cost.roof, "gemm/" + name);
    EXPECT_EQ(arm.cost.flops, parse_matmul_shape(first.notes().at("shape/" + name)).flops());
  }
  EXPECT_TRUE(first.results().at("fp32").unavailable.empty());

  const CheckingTrial second(*technique, device(), {{"regime", "burst"}}, first.notes());
  EXPECT_EQ(second.notes(), first.notes());
}

}  // namespace
}  // namespace gpulift
