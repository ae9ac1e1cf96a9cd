#include <gtest/gtest.h>

#include "benches/module_under_test.hpp"
#include "core/testing/host_checking_trial.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(TorchCompile, CostsWhatTheModelCostsAndTheArmInCppTrainsIt) {
  const HostCheckingTrial trial(*technique, {{"model", "gpt_toy"}});
  for (const auto& result : trial.results()) {
    ASSERT_TRUE(result.arm.cost.has_value()) << result.arm.name;
    EXPECT_EQ(result.arm.cost->items, 8 * 32) << result.arm.name;
  }
  const auto& cpp = trial.results().back();
  EXPECT_EQ(cpp.not_made, "");
  EXPECT_LE(cpp.error, cpp.tolerance);
  EXPECT_EQ(trial.notes().at("batch"), "8");
}

TEST(TorchCompile, SkipsLargeModelsWithoutAGpu) {
  EXPECT_THROW(HostCheckingTrial(*technique, {{"model", "gpt2"}}), std::runtime_error);
}

}  // namespace
}  // namespace gpulift
