#include <gtest/gtest.h>

#include "benches/module_under_test.hpp"
#include "core/testing/host_checking_trial.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(Xla, CountsProductsByHand) {
  const HostCheckingTrial trial(*technique, {{"model", "gpt_toy"}});
  // Per token and layer: 64 x 192, 64 x 64 and twice 64 x 256 of weights, twice 32 x 64 of attention, of
  // which half is masked; 64 x 64 at the end.
  const double products = 8 * 32 * (2 * (64 * 192 + 64 * 64 + 2 * 64 * 256 + 32 * 64) + 64 * 64);
  EXPECT_EQ(trial.trial_cost().flops, 3 * 2 * products);
  EXPECT_EQ(trial.trial_cost().items, 8 * 32);
}

TEST(Xla, SkipsLargeModelsWithoutAGpu) {
  EXPECT_THROW(HostCheckingTrial(*technique, {{"model", "mlp"}}), std::runtime_error);
}

}  // namespace
}  // namespace gpulift
