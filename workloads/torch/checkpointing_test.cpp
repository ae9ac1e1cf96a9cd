#include "checkpointing.hpp"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "precision.hpp"
#include "training.hpp"
#include "workload.hpp"

namespace gpulift {
namespace {

using BlockRun = std::function<torch::Tensor(const torch::Tensor&)>;

/// A block with weights that draws random numbers, and counts its runs.
struct DropoutBlock {
  explicit DropoutBlock(torch::Device device) {
    torch::manual_seed(1);
    for (int i = 0; i < 2; ++i) weights.push_back((torch::randn({32, 32}) / 6).to(device).requires_grad_());
  }

  torch::Tensor operator()(const torch::Tensor& input) {
    ++runs;
    const torch::Tensor hidden = torch::dropout(torch::relu(torch::matmul(input, weights[0])), 0.5, /*train=*/true);
    return input + torch::matmul(hidden, weights[1]);
  }

  std::vector<torch::Tensor> weights;
  int runs = 0;
};

struct Outcome {
  std::vector<torch::Tensor> tensors;  // output, the input's gradient, the weights' gradients
  torch::Tensor drawn_after;
  int runs = 0;
};

Outcome outcome_of(torch::Device device, Precision precision, bool checkpointed) {
  DropoutBlock block(device);
  const torch::Tensor input = torch::randn({8, 32}).to(device).requires_grad_();
  torch::Tensor output;
  torch::Tensor loss;
  {
    const Autocast autocast(precision, device);
    const BlockRun run = [&](const torch::Tensor& value) { return block(value); };
    output = checkpointed ? checkpoint(run, input) : run(input);
    loss = output.to(torch::kFloat32).square().sum();
  }
  torch::rand({1}, torch::TensorOptions(device));  // what lies between both passes draws too
  loss.backward();
  return {{output.detach(), input.grad(), block.weights[0].grad(), block.weights[1].grad()},
          torch::rand({4}, torch::TensorOptions(device)),
          block.runs};
}

void expect_equal_outcomes(torch::Device device, Precision precision) {
  const Outcome plain = outcome_of(device, precision, false);
  const Outcome checkpointed = outcome_of(device, precision, true);
  ASSERT_EQ(plain.runs, 1);
  ASSERT_EQ(checkpointed.runs, 2);
  for (std::size_t i = 0; i < plain.tensors.size(); ++i) {
    ASSERT_TRUE(checkpointed.tensors[i].defined()) << i;
    EXPECT_EQ(checkpointed.tensors[i].scalar_type(), plain.tensors[i].scalar_type()) << i;
    EXPECT_TRUE(torch::equal(checkpointed.tensors[i], plain.tensors[i])) << i;
  }
  EXPECT_TRUE(torch::equal(checkpointed.drawn_after, plain.drawn_after));
}

TEST(Checkpoint, GivesTheSameGradientsBitForBitWithDropout) { expect_equal_outcomes(torch::kCPU, Precision::kFp32); }

TEST(Checkpoint, RepeatsTheAutocastOfTheFirstRun) { expect_equal_outcomes(torch::kCPU, Precision::kBf16); }

TEST(Checkpoint, GivesTheSameGradientsOnTheDevice) {
  if (!torch::cuda::is_available()) GTEST_SKIP();
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    expect_equal_outcomes(torch::Device(torch::kCUDA, 0), precision);
  }
}

TEST(Checkpoint, WithoutTheGeneratorsStateAnotherMaskIsDrawn) {
  DropoutBlock block(torch::kCPU);
  const torch::Tensor input = torch::ones({64, 32}).requires_grad_();
  const auto gradient = [&](Randomness randomness) {
    block.weights[0].mutable_grad().reset();
    torch::manual_seed(4);
    checkpoint([&](const torch::Tensor& value) { return block(value); }, input, randomness).sum().backward();
    return block.weights[0].grad().clone();
  };
  EXPECT_FALSE(torch::equal(gradient(Randomness::kRepeated), gradient(Randomness::kNone)));
}

TEST(Checkpoint, GivesGradientsWhereTheBackwardPassRunsInsideAutocast) {
  DropoutBlock block(torch::kCPU);
  const torch::Tensor input = torch::randn({8, 32}).requires_grad_();
  const Autocast autocast(Precision::kBf16, torch::kCPU);
  checkpoint([&](const torch::Tensor& value) { return block(value); }, input).to(torch::kFloat32).sum().backward();
  for (const torch::Tensor& weight : block.weights) EXPECT_TRUE(weight.grad().defined());
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
}

TEST(Checkpoint, NestsAndRunsWithoutGradients) {
  const torch::Tensor input = torch::randn({4}).requires_grad_();
  const BlockRun inner = [](const torch::Tensor& value) { return value.square(); };
  const BlockRun outer = [&](const torch::Tensor& value) { return checkpoint(inner, value) * value; };
  checkpoint(outer, input).sum().backward();
  EXPECT_TRUE(torch::allclose(input.grad(), 3 * input.detach().square()));
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(checkpoint(inner, input), input.square()));
}

TEST(Checkpointing, NamesTheBlocksOfAPolicy) {
  const auto blocks = [](Checkpointing policy) {
    std::vector<bool> chosen;
    for (std::int64_t i = 0; i < 4; ++i) chosen.push_back(recomputes(policy, i));
    return chosen;
  };
  EXPECT_EQ(blocks(Checkpointing::kNone), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(blocks(Checkpointing::kEveryBlock), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(blocks(Checkpointing::kSelective), (std::vector<bool>{true, false, true, false}));
}

TEST(Checkpointing, ChangesNoLossOfATransformer) {
  const auto train = [](const Workload& workload, Checkpointing policy, Precision precision) {
    TrainingRun run(
        workload,
        {.precision = precision,
         .prepare = [policy](Model& model) { dynamic_cast<Checkpointable&>(model).use_checkpointing(policy); }},
        torch::kCPU, 5);
    return losses_of(run, 3);
  };
  for (const char* model : {"gpt_toy", "llama_toy"}) {
    const Workload workload = make_workload(model, 4);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kPureBf16}) {
      const auto plain = train(workload, Checkpointing::kNone, precision);
      EXPECT_LT(plain.back(), plain.front()) << model;
      EXPECT_EQ(train(workload, Checkpointing::kEveryBlock, precision), plain) << model;
      EXPECT_EQ(train(workload, Checkpointing::kSelective, precision), plain) << model;
    }
  }
}

}  // namespace
}  // namespace gpulift
