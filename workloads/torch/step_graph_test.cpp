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
  static std::vector<double> replayed_losses(TrainingOptions options) {
    options.keep_gradients = GetParam() == StepGraph::Part::kUpdate;
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

class PartsOfGraphs : public DeviceTest {
 protected:
  static StepGraph graph_of(StepGraph::Part part, const TrainingOptions& options = {.keep_gradients = true}) {
    return {run_on(torch::kCUDA, options), rehearsal_on(torch::kCUDA, options), part};
  }
};

TEST_F(PartsOfGraphs, AddUpToTheNodesOfTheWholeStep) {
  const std::size_t rest = graph_of(StepGraph::Part::kForwardBackward).nodes();
  const std::size_t update = graph_of(StepGraph::Part::kUpdate).nodes();
  EXPECT_GT(rest, 10U);
  EXPECT_GT(update, 0U);
  EXPECT_EQ(graph_of(StepGraph::Part::kWholeStep).nodes(), rest + update);
}

TEST_F(PartsOfGraphs, TellTheBytesThatPass) {
  EXPECT_GT(graph_of(StepGraph::Part::kForwardBackward).passing_bytes(), 0);
  EXPECT_GT(graph_of(StepGraph::Part::kWholeStep).passing_bytes(), 0);
}

TEST_F(PartsOfGraphs, OfAnUpdateAreRefusedWhereGradientsAreFreed) {
  EXPECT_THROW(graph_of(StepGraph::Part::kUpdate, {}), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Parts, StepGraphs,
                         testing::Values(StepGraph::Part::kForwardBackward, StepGraph::Part::kUpdate,
                                         StepGraph::Part::kWholeStep),
                         [](const auto& info) {
                           if (info.param == StepGraph::Part::kUpdate) return "Update";
                           return info.param == StepGraph::Part::kWholeStep ? "WholeStep" : "ForwardBackward";
                         });

}  // namespace
}  // namespace gpulift
