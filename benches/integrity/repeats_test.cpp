#include <algorithm>
#include <map>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

constexpr std::size_t kGiB = std::size_t{1} << 30;

TEST(IntegrityRepeats, TheFewestRepeatsAreTheQuickCase) {
  const auto& values = technique->sweep.at(0).values;
  EXPECT_EQ(technique->quick.at(0).at(0).second, *std::min_element(values.begin(), values.end()));
  EXPECT_TRUE(technique->ceiling) << "its arms do different work: their times say nothing about each other";
}

class IntegrityRepeatsOnDevice : public DeviceTest {};

TEST_F(IntegrityRepeatsOnDevice, NothingDiffersAndNoArmIsARoof) {
  const CheckingTrial trial(*technique, device(), {{"repeats", std::int64_t{2}}});
  for (const auto& [name, arm] : trial.results()) {
    if (!arm.unavailable.empty()) continue;
    EXPECT_EQ(arm.error, 0) << name;
    EXPECT_EQ(arm.tolerance, 0) << name;
    EXPECT_EQ(arm.cost.roof, "") << name;
    EXPECT_EQ(arm.cost.items, 0) << name << ": the report lists ceilings that count items as costs of one item";
    EXPECT_GT(arm.cost.bytes + arm.cost.flops, 0) << name;
  }
  EXPECT_LE(device().memory().peak_bytes(), 2 * kGiB);
  EXPECT_EQ(trial.notes().count("algorithm/gemm_fp32"), 1U);
}

}  // namespace
}  // namespace gpulift
