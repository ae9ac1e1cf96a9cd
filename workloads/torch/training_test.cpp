#include "training.hpp"

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/modules/conv.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "testing_workload.hpp"

namespace gpulift {
namespace {

using testing_workloads::two_layers;

constexpr std::uint64_t kFirstSeed = 3;

TrainingRun run_of(const TrainingOptions& options, std::uint64_t seed = kFirstSeed) {
  return {two_layers(8), options, torch::kCPU, seed};
}

/// One convolution with a loss: to see how tensors lie in memory.
class Convolution : public Model {
 public:
  torch::Tensor forward(const Batch& batch) override {
    seen_ = convolution_(batch.input);
    return seen_;
  }
  torch::Tensor loss(const Batch& batch) override { return forward(batch).to(torch::kFloat32).square().mean(); }
  const torch::Tensor& seen() const { return seen_; }

 private:
  torch::nn::Conv2d convolution_ = register_module("convolution", torch::nn::Conv2d(4, 8, 3));
  torch::Tensor seen_;
};

Workload convolution_workload() {
  Workload workload;
  workload.make_model = [](torch::Device /*device*/) { return std::make_shared<Convolution>(); };
  workload.make_batch = []() -> Batch { return {torch::randn({2, 4, 8, 8}), torch::zeros({2}, torch::kInt64)}; };
  workload.items = 2;
  return workload;
}

TEST(TrainingRunLosses, FallAndAreTheSameForASeed) {
  TrainingRun first = run_of({});
  TrainingRun second = run_of({});
  const auto losses = losses_of(first, 10);
  EXPECT_EQ(losses, losses_of(second, 10));
  EXPECT_LT(losses.back(), 0.9 * losses.front());
  TrainingRun other = run_of({}, kFirstSeed + 1);
  EXPECT_NE(losses, losses_of(other, 10));
}

// As on a device, whose own generator draws the weights.
TEST(TrainingRunData, DoNotDependOnWhatTheWeightsTookFromTheGenerator) {
  const TrainingRun plain(convolution_workload(), {}, torch::kCPU, kFirstSeed);
  Workload drawing = convolution_workload();
  drawing.make_model = [](torch::Device /*device*/) {
    torch::rand({100});
    return std::make_shared<Convolution>();
  };
  const TrainingRun other(drawing, {}, torch::kCPU, kFirstSeed);
  EXPECT_TRUE(torch::equal(plain.batch().input, other.batch().input));
}

TEST(TrainingRunLosses, AreUndefinedBeforeTheFirstStep) { EXPECT_FALSE(run_of({}).loss().defined()); }

TEST(TrainingRunLosses, AreTheSameForEveryFormOfTheOptimizer) {
  TrainingRun fused = run_of({});
  const auto expected = losses_of(fused, 10);
  for (const OptimizerForm form : {OptimizerForm::kLoop, OptimizerForm::kForeach}) {
    TrainingRun run = run_of({.optimizer = form});
    EXPECT_LE(largest_deviation(losses_of(run, 10), expected), 1e-5);
  }
}

// Also that autocast and masters lose some digits: else they would not have been on.
TEST(TrainingRunLosses, FollowFp32AtEveryPrecisionButNotToTheLastDigit) {
  TrainingRun fp32 = run_of({});
  const auto expected = losses_of(fp32, 10);
  for (const Precision precision : {Precision::kFp16, Precision::kBf16, Precision::kPureBf16}) {
    TrainingRun run = run_of({.precision = precision});
    const double deviation = largest_deviation(losses_of(run, 10), expected);
    EXPECT_GT(deviation, 1e-7) << roof_of(precision, torch::kCUDA);
    EXPECT_LE(deviation, 0.05) << roof_of(precision, torch::kCUDA);
  }
}

/// Over seeds: mean and standard deviation of what a model learns at this precision while its batch is far from learnt
/// by heart, as the logarithm of the last loss over the first.
std::pair<double, double> learnt(const Workload& workload, Precision precision, torch::Device device = torch::kCPU) {
  constexpr int kSeeds = 12;
  constexpr int kSteps = 25;
  std::vector<double> found;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    TrainingRun run(workload, {.precision = precision}, device, seed);
    const auto losses = losses_of(run, kSteps);
    found.push_back(std::log(losses.back() / losses.front()));
  }
  const double mean = std::accumulate(found.begin(), found.end(), 0.0) / kSeeds;
  double squares = 0;
  for (const double one : found) squares += (one - mean) * (one - mean);
  return {mean, std::sqrt(squares / (kSeeds - 1))};
}

// Trajectories part by design, since they round differently. What is learnt must not differ: by far less than seeds do.
TEST(TrainingRunLosses, FallAsFarOverSeedsAtEveryPrecisionAsInFp32) {
  const auto [expected, spread] = learnt(two_layers(8), Precision::kFp32);
  EXPECT_LT(expected, -1);  // it learns
  for (const Precision precision : {Precision::kFp16, Precision::kBf16, Precision::kPureBf16}) {
    EXPECT_NEAR(learnt(two_layers(8), precision).first, expected, spread / 20) << roof_of(precision, torch::kCUDA);
  }
}

TEST(TrainingRunLosses, OfATransformerFallAsFarOverSeedsInBf16AsInFp32) {
  if (!host_multiplies_in(Precision::kBf16)) GTEST_SKIP() << "the processor has no products of BF16: minutes";
  const Workload workload = make_workload("gpt_toy", 1);
  const auto [expected, spread] = learnt(workload, Precision::kFp32);
  EXPECT_LT(expected, -1);  // it learns
  for (const Precision precision : {Precision::kBf16, Precision::kPureBf16}) {
    EXPECT_NEAR(learnt(workload, precision).first, expected, spread / 10) << roof_of(precision, torch::kCUDA);
  }
}

TEST(TrainingRunLosses, OnAGpuFallAsFarOverSeedsAtEveryPrecisionAsInFp32) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  // At rates that learn a good part of a batch, but not all of it, in so few steps.
  for (const auto& [model, batch_size, rate] :
       {std::tuple{"gpt_toy", 1, 3e-3}, {"lstm_toy", 1, 1e-2}, {"resnet18", 32, 1e-3}}) {
    Workload workload = make_workload(model, batch_size);
    workload.rule.learning_rate = rate;
    const auto [expected, spread] = learnt(workload, Precision::kFp32, torch::kCUDA);
    EXPECT_LT(expected, -1) << model;  // it learns
    for (const Precision precision : {Precision::kTf32, Precision::kFp16, Precision::kBf16, Precision::kPureBf16}) {
      EXPECT_NEAR(learnt(workload, precision, torch::kCUDA).first, expected, spread / 4)
          << model << " in " << roof_of(precision, torch::kCUDA);
    }
  }
}

/// Gradients after one step without an update that could hide a wrong scale.
std::vector<torch::Tensor> gradients(std::int64_t micro_batches) {
  Workload workload = two_layers(8);
  workload.rule.learning_rate = 0;
  TrainingRun run(workload, {.micro_batches = micro_batches}, torch::kCPU, kFirstSeed);
  run.step();
  std::vector<torch::Tensor> found;
  for (const torch::Tensor& parameter : run.model().parameters()) found.push_back(parameter.grad());
  return found;
}

TEST(MicroBatches, AddUpToTheGradientsOfTheWholeBatch) {
  const auto whole = gradients(1);
  for (const std::int64_t parts : {2, 4, 8}) {
    const auto accumulated = gradients(parts);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(torch::allclose(accumulated[i], whole[i], 1e-5, 1e-6)) << parts << " parts, parameter " << i;
    }
  }
}

TEST(MicroBatches, HaveTheMeanLossOfTheWholeBatchAndOneUpdate) {
  TrainingRun whole = run_of({});
  TrainingRun parts = run_of({.micro_batches = 4});
  EXPECT_LE(largest_deviation(losses_of(parts, 10), losses_of(whole, 10)), 1e-5);
}

TEST(MicroBatches, MustSplitTheBatch) { EXPECT_THROW(run_of({.micro_batches = 3}), std::invalid_argument); }

TEST(PureBf16, HasWeightsAndGradientsInBf16AndLearnsByUpdatesThatBf16WouldLose) {
  Workload workload = two_layers(8);
  workload.rule = {.learning_rate = 4e-5, .weight_decay = 0};  // BF16 has 8 bits: it cannot add 4e-5 to a weight of 0.1
  TrainingRun run(workload, {.precision = Precision::kPureBf16}, torch::kCPU, kFirstSeed);
  const torch::Tensor weight = run.model().parameters()[0];
  EXPECT_EQ(weight.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(run.batch().input.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(run.batch().target.scalar_type(), torch::kFloat32);
  const torch::Tensor before = weight.detach().clone();
  losses_of(run, 50);
  EXPECT_EQ(weight.grad().scalar_type(), torch::kBFloat16);
  // 50 updates are 2e-3; without masters only the few weights near 0 would move.
  EXPECT_GE((weight.to(torch::kFloat32) - before.to(torch::kFloat32)).abs().mean().item<double>(), 5e-4);
}

TEST(Fp16, SkipsAStepWhoseGradientsOverflow) {
  TrainingRun run = run_of({.precision = Precision::kFp16});
  run.step();
  const double scale = run.scaler()->current_scale();
  const torch::Tensor weight = run.model().parameters()[0];
  const torch::Tensor before = weight.detach().clone();
  Batch batch{torch::randn({8, 8}), torch::full({8, 4}, std::numeric_limits<float>::infinity())};
  run.use_batch(batch);
  run.step();
  EXPECT_TRUE(torch::equal(weight, before));
  EXPECT_EQ(run.scaler()->current_scale(), scale / 2);
}

TEST(ChannelsLast, LaysOutWeightsInputAndWhatFollowsFromThem) {
  for (const bool channels_last : {false, true}) {
    TrainingRun run(convolution_workload(), {.channels_last = channels_last}, torch::kCPU, kFirstSeed);
    run.step();
    const auto is_so = [&](const torch::Tensor& tensor) {
      return tensor.is_contiguous(torch::MemoryFormat::ChannelsLast) == channels_last;
    };
    EXPECT_TRUE(is_so(run.model().parameters()[0]));
    EXPECT_TRUE(is_so(run.batch().input));
    EXPECT_TRUE(is_so(dynamic_cast<Convolution&>(run.model()).seen()));
    EXPECT_TRUE(is_so(run.model().parameters()[0].grad()));
  }
}

TEST(ChannelsLast, DoesNotChangeTheLosses) {
  TrainingRun contiguous(convolution_workload(), {}, torch::kCPU, kFirstSeed);
  TrainingRun channels_last(convolution_workload(), {.channels_last = true}, torch::kCPU, kFirstSeed);
  EXPECT_LE(largest_deviation(losses_of(channels_last, 5), losses_of(contiguous, 5)), 1e-4);
}

TEST(UseBatch, MakesTheNextStepsLearnFromItInTheRunsOwnTypeAndLayout) {
  TrainingRun run = run_of({});
  run.step();
  const Batch other{torch::ones({8, 8}), torch::full({8, 4}, 100.0)};
  run.use_batch(other);
  run.step();
  EXPECT_GT(run.loss().item<double>(), 9000);
  TrainingRun images(convolution_workload(), {.precision = Precision::kPureBf16, .channels_last = true}, torch::kCPU,
                     kFirstSeed);
  images.use_batch({torch::randn({2, 4, 8, 8}), torch::zeros({2}, torch::kInt64)});
  EXPECT_TRUE(images.batch().input.is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_EQ(images.batch().input.scalar_type(), torch::kBFloat16);
}

TEST(Hooks, AreCalledOnceForTheModelAndBeforeEveryStep) {
  int prepared = 0;
  int steps = 0;
  TrainingOptions options;
  options.prepare = [&](Model&) { ++prepared; };
  options.before_step = [&] { ++steps; };
  TrainingRun run = run_of(options);
  losses_of(run, 3);
  EXPECT_EQ(prepared, 1);
  EXPECT_EQ(steps, 3);
}

TEST(PartsOfAStep, AreTheWholeStep) {
  TrainingRun whole = run_of({});
  TrainingRun parts = run_of({});
  const auto expected = losses_of(whole, 3);
  for (const double loss : expected) {
    parts.forward_backward();
    EXPECT_EQ(parts.loss().item<double>(), loss);
    parts.update();
  }
}

TEST(KeptGradients, StayWhereTheyAreAndChangeNoLoss) {
  TrainingRun plain = run_of({.micro_batches = 2});
  TrainingRun run = run_of({.keep_gradients = true, .micro_batches = 2});
  const auto addresses = [&run] {
    std::vector<const void*> found;
    for (const torch::Tensor& parameter : run.model().parameters()) found.push_back(parameter.grad().data_ptr());
    return found;
  };
  const auto before = addresses();
  EXPECT_EQ(losses_of(run, 5), losses_of(plain, 5));
  EXPECT_EQ(addresses(), before);
}

TEST(LargestDeviation, IsRelativeToTheFirstLossAndNotANumberWhereALossIsNone) {
  EXPECT_DOUBLE_EQ(largest_deviation({2.1, 0.5}, {2.0, 0.1}), 0.2);
  EXPECT_TRUE(std::isnan(largest_deviation({1.0, std::numeric_limits<double>::quiet_NaN()}, {1.0, 1.0})));
  EXPECT_TRUE(std::isnan(largest_deviation({std::numeric_limits<double>::infinity()}, {1.0})));
  EXPECT_THROW(largest_deviation({1.0}, {1.0, 2.0}), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
