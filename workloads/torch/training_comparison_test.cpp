#include "training_comparison.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/testing/host_checking_trial.hpp"
#include "testing_workload.hpp"

namespace gpulift {
namespace {

using testing_workloads::two_layers;

constexpr double kTolerance = 1e-4;

/// A comparison on the host, whose steps are checked.
class ComparisonOnTheHost : public testing::Test {
 protected:
  const HostCheckingTrial::ArmResult& compare(const Arm& arm, double tolerance = kTolerance) {
    comparison_.compare({arm}, tolerance);
    return trial_.results().back();
  }
  /// An arm whose step does something else with its run.
  Arm arm_that(const std::function<void(TrainingRun&)>& step) const {
    TrainingComparison::ArmOptions options;
    options.wrap = [step](const std::shared_ptr<TrainingRun>& run) { return [run, step] { step(*run); }; };
    return comparison_.arm("arm", {}, options);
  }

  HostCheckingTrial trial_{Point{}};
  TrainingComparison comparison_{trial_, two_layers(8)};
};

TEST_F(ComparisonOnTheHost, PassesAnArmThatTrainsAndFindsOneThatDidNotStep) {
  const auto& result = compare(comparison_.arm("arm", {}));
  EXPECT_EQ(result.error, 0);
  EXPECT_TRUE(std::isnan(result.poisoned_error)) << "no step was taken";
}

TEST_F(ComparisonOnTheHost, FindsAnArmThatNeverUpdates) {
  EXPECT_GT(compare(arm_that([](TrainingRun& run) { run.forward_backward(); })).error, 0.05);
}

TEST_F(ComparisonOnTheHost, FindsAnArmThatTakesTwoStepsAsOne) {
  EXPECT_GT(compare(arm_that([](TrainingRun& run) { losses_of(run, 2); })).error, 0.01);
}

TEST_F(ComparisonOnTheHost, FindsAnArmThatUpdatesTwice) {
  const auto step = [](TrainingRun& run) {
    run.step();
    run.update();
  };
  EXPECT_GT(compare(arm_that(step)).error, 0.01);
}

TEST_F(ComparisonOnTheHost, FindsAnArmWithOtherData) {
  Workload other = two_layers(8);
  other.make_batch = []() -> Batch { return {torch::ones({8, 8}), torch::ones({8, 4})}; };
  TrainingComparison::ArmOptions options;
  options.wrap = [other](const std::shared_ptr<TrainingRun>& run) {
    run->use_batch(other.make_batch());
    return [run] { run->step(); };
  };
  EXPECT_GT(compare(comparison_.arm("arm", {}, options)).error, 0.05);
}

TEST_F(ComparisonOnTheHost, ComparesASmallerBatchWithItself) {
  TrainingComparison::ArmOptions options;
  options.workload = two_layers(4);
  EXPECT_EQ(compare(comparison_.arm("arm", {}, options)).error, 0);
  EXPECT_EQ(trial_.results().back().arm.cost->items, 4);
  EXPECT_EQ(trial_.results().back().arm.cost->flops, two_layers(4).flops);
}

TEST_F(ComparisonOnTheHost, ComparesPartsOfABatchWithPartsWhereItIsTold) {
  TrainingComparison::ArmOptions options;
  options.reference_micro_batches = 4;
  EXPECT_EQ(compare(comparison_.arm("arm", {.micro_batches = 4}, options)).error, 0);
}

TEST_F(ComparisonOnTheHost, NeverHoldsTheReferenceBesideAnArmWhichMayFillTheMemory) {
  int alive = 0;
  int most = 0;
  int made = 0;
  TrainingComparison::ArmOptions options;
  options.workload = two_layers(4);
  options.workload->make_model = [&](torch::Device /*device*/) {
    ++made;
    most = std::max(most, ++alive);
    return std::shared_ptr<Model>(new testing_workloads::TwoLayers, [&alive](Model* model) {
      --alive;
      delete model;
    });
  };
  EXPECT_EQ(compare(comparison_.arm("arm", {}, options)).error, 0);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(most, 1);
}

TEST_F(ComparisonOnTheHost, TakesNoReferenceOfABatchThatDoesNotFit) {
  class Greedy : public testing_workloads::TwoLayers {
   public:
    explicit Greedy(int* steps) : steps_(steps) {}
    torch::Tensor loss(const Batch& batch) override {
      ++*steps_;
      if (batch.input.size(0) > 2) TORCH_CHECK(false, "CUDA out of memory");
      return TwoLayers::loss(batch);
    }

   private:
    int* steps_;
  };
  int steps = 0;
  TrainingComparison::ArmOptions options;
  options.workload = two_layers(8);
  options.workload->make_model = [&](torch::Device /*device*/) { return std::make_shared<Greedy>(&steps); };
  options.reference_micro_batches = 4;
  EXPECT_NE(compare(comparison_.arm("arm", {}, options)).not_made.find("out of memory"), std::string::npos);
  EXPECT_EQ(steps, 1);
}

TEST_F(ComparisonOnTheHost, ExactlyMeansThatNothingMayDiffer) {
  comparison_.compare_exactly({comparison_.arm("same", {.precision = Precision::kBf16}), comparison_.arm("other", {})},
                              {.precision = Precision::kBf16});
  EXPECT_EQ(trial_.results()[0].error, 0);
  EXPECT_EQ(trial_.results()[0].tolerance, 0);
  EXPECT_GT(trial_.results()[1].error, 0);
}

TEST_F(ComparisonOnTheHost, GivesCostToleranceAndMetricsOfAnArm) {
  TrainingComparison::ArmOptions options;
  options.tolerance = 0.5;
  options.metrics = [](TrainingRun& run) { return Metrics{{"loss", run.loss().item<double>()}}; };
  const auto& result = compare(comparison_.arm("arm", {}, options));
  EXPECT_EQ(result.tolerance, 0.5);
  EXPECT_EQ(result.arm.clock, Clock::kUnheld);
  EXPECT_EQ(trial_.trial_cost().flops, two_layers(8).flops);
  EXPECT_EQ(trial_.trial_cost().items, 8);
  EXPECT_EQ(trial_.trial_cost().item, "sample");
  EXPECT_EQ(trial_.trial_cost().roof, "host_gemm/fp32");
  const Step step = result.arm.make().step();
  step(nullptr);
  EXPECT_GT(result.arm.metrics(step, nullptr).at("loss"), 0);
}

TEST_F(ComparisonOnTheHost, LeavesOutWhatTheProcessorWouldComputeProductByProduct) {
  TrainingComparison::ArmOptions options;
  options.workload = two_layers(8);
  const auto why_not = [&](Precision precision) {
    return comparison_.arm("arm", {.precision = precision}, options).unavailable;
  };
  EXPECT_EQ(why_not(Precision::kBf16), "") << "small enough everywhere";
  options.workload->flops = 1e9;
  for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16, Precision::kPureBf16}) {
    EXPECT_EQ(why_not(precision).empty(), host_multiplies_in(precision)) << roof_of(precision, torch::kCPU);
  }
}

TEST(TrainingComparisonOnAHost, SkipsWhatWouldTakeMinutes) {
  HostCheckingTrial trial(Point{});
  Workload workload = two_layers(8);
  workload.flops = 1e12;
  EXPECT_THROW(TrainingComparison(trial, workload), std::runtime_error);
}

}  // namespace
}  // namespace gpulift
