#include <gtest/gtest.h>

#include "benches/module_under_test.hpp"
#include "core/testing/host_checking_trial.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(GradientAccumulation, TakesAsManyMicroBatchesForAStepAsItSaysAtEqualMicroBatches) {
  const HostCheckingTrial trial(*technique, {{"model", "gpt_toy"}, {"equal", "micro_batch"}});
  const double micro_items = trial.results().front().arm.cost->items;
  EXPECT_EQ(trial.results()[1].arm.cost->items, 4 * micro_items);
  EXPECT_EQ(trial.results()[2].arm.cost->items, 16 * micro_items);
  for (const auto& result : trial.results()) EXPECT_LE(result.error, result.tolerance) << result.arm.name;
}

}  // namespace
}  // namespace gpulift
