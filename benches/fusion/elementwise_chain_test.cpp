#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class ElementwiseChain : public DeviceTest {};

TEST_F(ElementwiseChain, OurKernelIsThatOfDoublePrecision) {
  constexpr std::int64_t kBytes = 70'006;  // neither whole rows nor whole packs
  const CheckingTrial trial(*technique, device(), {{"chain", "gelu"}, {"bytes", kBytes}});
  const auto& fused = trial.results().at("fused");
  EXPECT_LE(fused.error, fused.tolerance);
  EXPECT_GT(fused.error, 0) << "BF16 rounds";
  EXPECT_EQ(fused.cost.bytes, 2 * kBytes);
  EXPECT_EQ(fused.cost.roof, "") << "the cache has its data";
  EXPECT_EQ(fused.peak_device_bytes, 0);
}

}  // namespace
}  // namespace gpulift
