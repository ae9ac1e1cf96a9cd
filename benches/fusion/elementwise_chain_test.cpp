#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class ElementwiseChain : public DeviceTest {};

TEST_F(ElementwiseChain, EveryArmIsThatOfDoublePrecision) {
  constexpr std::int64_t kBytes = 70'006;  // neither whole rows nor whole packs
  for (const std::int64_t operations : {2, 8}) {
    CheckingTrial trial(device(), {{"operations", operations}, {"bytes", kBytes}});
    technique->run(trial);
    ASSERT_EQ(trial.results().size(), technique->arms.size());
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_LE(arm.error, arm.tolerance) << operations << " " << name;
      EXPECT_GT(arm.error, 0) << "BF16 rounds: " << operations << " " << name;
      EXPECT_EQ(arm.cost.bytes, 2 * kBytes) << name;
      EXPECT_EQ(arm.cost.roof, "") << name << " finds its data in the cache";
    }
    EXPECT_LT(trial.results().at("fused").error, trial.results().at("op_by_op").error) << "the chain rounds more often";
    EXPECT_EQ(trial.results().at("graph_of_ops").error, trial.results().at("op_by_op").error) << "the same kernels";
    EXPECT_EQ(trial.results().at("fused").peak_device_bytes, 0);
    EXPECT_EQ(trial.results().at("op_by_op").peak_device_bytes, (operations == 2 ? 1 : 2) * kBytes);
  }
}

}  // namespace
}  // namespace gpulift
