#include <gtest/gtest.h>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/torch/repeating_kernels.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class WholeStepGraph : public DeviceTest {};

TEST_F(WholeStepGraph, APartHasFewerNodes) {
  const CheckingTrial trial(*technique, device(), {{"model", "gpt_small"}, {"batch", "small"}});
  const auto& eager = trial.results().at("eager").metrics;
  const auto& part = trial.results().at("forward_backward_graph").metrics;
  const auto& whole = trial.results().at("whole_step_graph").metrics;
  EXPECT_LT(part.at("graph_nodes_per_step"), whole.at("graph_nodes_per_step"));
  // A graph needs what an eager step needs, though the allocator sees it only once.
  EXPECT_GE(whole.at("peak_allocated_bytes"), 0.9 * eager.at("peak_allocated_bytes"));
  EXPECT_LE(whole.at("peak_allocated_bytes"), 1.5 * eager.at("peak_allocated_bytes"));
}

TEST_F(WholeStepGraph, TrainsExactlyAsEagerStepsWhereKernelsRepeat) {
  const RepeatingKernels repeating;
  const CheckingTrial trial(*technique, device(), {{"model", "gpt_small"}, {"batch", "small"}});
  for (const auto& [name, arm] : trial.results()) EXPECT_EQ(arm.error, 0) << name;
}

}  // namespace
}  // namespace gpulift
