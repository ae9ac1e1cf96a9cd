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

using CeilingGemmOnDevice = DeviceTest;

TEST_F(CeilingGemmOnDevice, AFixedProductIsNotSearched) {
  const CheckingTrial trial(*technique, device(), {{"regime", "burst"}, {"product", "fixed"}});
  const CheckingTrial again(*technique, device(), {{"regime", "sustained"}, {"product", "fixed"}});
  for (const auto& [name, arm] : trial.results()) {
    if (!arm.unavailable.empty()) continue;
    EXPECT_EQ(trial.notes().at("shape/" + name), "8192x8192x8192");
    EXPECT_EQ(trial.notes().at("plan/" + name), again.notes().at("plan/" + name));
  }
}

}  // namespace
}  // namespace gpulift
