#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using PrecisionAlignmentOnDevice = DeviceTest;

TEST(PrecisionAlignment, EveryShapeHasASideThatPaddingTo64Changes) {
  for (const Value& value : technique->sweep.at(0).values) {
    const MatmulShape shape = parse_matmul_shape(std::get<std::string>(value));
    EXPECT_NE(padded_to(shape, 64), shape);
    EXPECT_EQ(padded_to(shape, 1), shape);
    EXPECT_EQ(shape.n % 128, 0) << "tokens are never padded";
  }
}

TEST_F(PrecisionAlignmentOnDevice, PaddedArmsGiveTheUnpaddedResultAndCountItsOperations) {
  const CheckingTrial trial(*technique, device(), {{"shape", "1024x1024x1023"}, {"regime", "burst"}});
  for (const auto& [name, arm] : trial.results()) {
    if (!arm.unavailable.empty()) continue;
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_EQ(arm.cost.flops, 2.0 * 1024 * 1024 * 1023) << name;
  }
  EXPECT_FALSE(trial.notes().contains("plan/cublas_gemm_ex")) << "the call takes none";
}

TEST_F(PrecisionAlignmentOnDevice, ActivationsAreCopiedOnlyWhereTheyAreUnpadded) {
  const CheckingTrial trial(*technique, device(), {{"shape", "1023x1024x1024"}, {"regime", "burst"}});
  EXPECT_NE(trial.results().at("to_64_copied").unavailable, "");
  EXPECT_LE(trial.results().at("to_8").error, trial.results().at("to_8").tolerance);
}

}  // namespace
}  // namespace gpulift
