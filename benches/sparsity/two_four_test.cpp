#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using SparsityTwoFourOnDevice = DeviceTest;

TEST(SparsityTwoFour, SidesSuitTheLibrary) {
  for (const Value& value : technique->sweep.at(0).values) {
    const MatmulShape shape = parse_matmul_shape(std::get<std::string>(value));
    for (const std::int64_t side : {shape.m, shape.n, shape.k}) EXPECT_EQ(side % 16, 0) << to_string(shape);
  }
}

TEST_F(SparsityTwoFourOnDevice, EveryArmIsRightAndCountsTheDenseOperations) {
  const CheckingTrial trial(*technique, device(), {{"shape", "1024x1024x1024"}, {"regime", "burst"}});
  for (const auto& [name, arm] : trial.results()) {
    if (!arm.unavailable.empty()) continue;
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_EQ(arm.cost.flops, 2.0 * 1024 * 1024 * 1024) << name;
    EXPECT_EQ(arm.cost.roof, name.starts_with("dense") ? "gemm/bf16" : "") << name;
    EXPECT_EQ(trial.notes().count("algorithm/" + name), 1U) << name;
  }
  EXPECT_EQ(trial.versions().count("cusparselt"), 1U);
}

}  // namespace
}  // namespace gpulift
