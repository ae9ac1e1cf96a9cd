#include <gtest/gtest.h>

#include "benches/module_under_test.hpp"
#include "core/testing/host_checking_trial.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(StepShare, EveryFormSaysItsShareOfTheStep) {
  const HostCheckingTrial trial(*technique, {{"model", "gpt_toy"}});
  for (const auto& result : trial.results()) {
    EXPECT_EQ(result.not_made, result.arm.name == "graph" ? "a host has no CUDA graphs" : "");
    if (!result.not_made.empty()) continue;
    const Step step = result.arm.make().step();
    step(nullptr);
    const Metrics metrics = result.arm.metrics(step, nullptr);
    const double optimizer_s = metrics.at("optimizer_time_s");
    EXPECT_GT(optimizer_s, 0);
    EXPECT_DOUBLE_EQ(metrics.at("optimizer_share"),
                     optimizer_s / (optimizer_s + metrics.at("forward_backward_time_s")));
  }
}

}  // namespace
}  // namespace gpulift
