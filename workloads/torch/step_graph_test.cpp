#include "step_graph.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "kernels/device_test.hpp"
#include "testing_workload.hpp"

namespace gpulift {
namespace {

using testing_workloads::two_layers;

constexpr std::uint64_t kSeed = 5;
constexpr int kSteps = 6;

std::shared_ptr<TrainingRun> run_on(torch::Device device, const TrainingOptions& options) {
  return std::make_shared<TrainingRun>(two_layers(8), options, device, kSeed);
}

/// Other weights: none of them may reach the recorded run.
StepGraph::MakeRehearsal rehearsal_on(torch::Device device, const TrainingOptions& options) {
  return [device, options] { return std::make_unique<TrainingRun>(two_layers(8), options, device, kSeed + 1); };
}

TEST(StepGraphOnAHost, IsRefused) {
  EXPECT_THROW(StepGraph(run_on(torch::kCPU, {}), rehearsal_on(torch::kCPU, {}), StepGraph::Part::kWholeStep),
               std::invalid_argument);
}

class StepGraphs : public DeviceTest, public testing::WithParamInterface<StepGraph::Part> {
 protected:
  static std::vector<double> eager_losses(const TrainingOptions& options) {
    return losses_of(*run_on(torch::kCUDA, options), kSteps);
  }
  static std::vector<double> replayed_losses(const TrainingOptions& options) {
    const auto run = run_on(torch::kCUDA, options);
    StepGraph graph(run, rehearsal_on(torch::kCUDA, options), GetParam());
    std::vector<double> losses;
    for (int i = 0; i < kSteps; ++i) {
      graph.step();
      losses.push_back(run->loss().item<double>());
    }
    return losses;
  }
};

// No step is lost, and none is taken twice: products this small are the same to the last bit wherever they run.
TEST_P(StepGraphs, TakeTheStepsOfAnEagerRunFromTheFirstOn) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    EXPECT_LE(largest_deviation(replayed_losses({.precision = precision}), eager_losses({.precision = precision})),
              1e-6)
        << roof_of(precision, torch::kCUDA);
  }
}

// Scale, flag and count of steps lie on the device, so that replays go on with them.
TEST_P(StepGraphs, GoOnWithTheLossScaleOfFp16AndTheMastersOfBf16) {
  for (const Precision precision : {Precision::kFp16, Precision::kPureBf16}) {
    EXPECT_LE(largest_deviation(replayed_losses({.precision = precision}), eager_losses({.precision = precision})),
              1e-5)
        << roof_of(precision, torch::kCUDA);
  }
}

TEST_P(StepGraphs, HoldMicroBatchesToo) {
  EXPECT_LE(largest_deviation(replayed_losses({.micro_batches = 4}), eager_losses({.micro_batches = 4})), 1e-6);
}

TEST_P(StepGraphs, CountTheirNodesAndTheBytesThatPass) {
  const auto run = run_on(torch::kCUDA, {});
  const StepGraph graph(run, rehearsal_on(torch::kCUDA, {}), GetParam());
  EXPECT_GT(graph.nodes(), 10U);
  EXPECT_GT(graph.passing_bytes(), 0);
}

class PartsOfGraphs : public DeviceTest {};

TEST_F(PartsOfGraphs, OfAWholeStepHaveMoreNodesThanWithoutTheOptimizer) {
  const auto nodes = [](StepGraph::Part part) {
    return StepGraph(run_on(torch::kCUDA, {}), rehearsal_on(torch::kCUDA, {}), part).nodes();
  };
  EXPECT_GT(nodes(StepGraph::Part::kWholeStep), nodes(StepGraph::Part::kForwardBackward));
}

INSTANTIATE_TEST_SUITE_P(Parts, StepGraphs,
                         testing::Values(StepGraph::Part::kForwardBackward, StepGraph::Part::kWholeStep),
                         [](const auto& info) {
                           return info.param == StepGraph::Part::kWholeStep ? "WholeStep" : "ForwardBackward";
                         });

}  // namespace
}  // namespace gpulift
