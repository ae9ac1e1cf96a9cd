#include "encoder.hpp"

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/functional/padding.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <set>

#include "training.hpp"

namespace gpulift {
namespace {

class Encoder : public testing::Test {
 protected:
  // Threads that wait for one another make toy sizes slow where others compute too.
  static void SetUpTestSuite() { torch::set_num_threads(1); }
};

std::int64_t parameters_of(const Model& model) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

TEST_F(Encoder, HasTheNamesAndParametersOfHuggingFace) {
  const auto model = encoder_workload(1).make_model(torch::kCPU);
  // BertForMaskedLM of bert-base-uncased: the decoder's weight is that of the word embeddings.
  EXPECT_EQ(parameters_of(*model), 109'514'298);
  const auto parameters = model->named_parameters();
  for (const char* name :
       {"bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight", "bert.embeddings.LayerNorm.bias",
        "bert.encoder.layer.0.attention.self.query.weight", "bert.encoder.layer.0.attention.self.key.bias",
        "bert.encoder.layer.0.attention.self.value.weight", "bert.encoder.layer.11.attention.output.dense.weight",
        "bert.encoder.layer.11.attention.output.LayerNorm.weight", "bert.encoder.layer.11.intermediate.dense.bias",
        "bert.encoder.layer.11.output.dense.weight", "bert.encoder.layer.11.output.LayerNorm.weight",
        "cls.predictions.bias", "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.LayerNorm.weight"}) {
    EXPECT_TRUE(parameters.contains(name)) << name;
  }
}

TEST_F(Encoder, BatchesArePaddedToTheirLongestRow) {
  std::set<std::int64_t> widths;
  for (const Batch& batch : encoder_workload(8).make_batches()) {
    widths.insert(batch.input.size(1));
    EXPECT_EQ(batch.input.size(1), batch.lengths.max().item<std::int64_t>());
    const torch::Tensor padding = torch::arange(batch.input.size(1)) >= batch.lengths.unsqueeze(1);
    EXPECT_TRUE((batch.input.eq(0) == padding).all().item<bool>());
    EXPECT_TRUE((batch.target.masked_select(padding) == -100).all().item<bool>());
    EXPECT_TRUE(((batch.target != -100) == (batch.input == 30'521)).all().item<bool>());
    EXPECT_TRUE((batch.target != -100).any(1).all().item<bool>());
  }
  EXPECT_GE(widths.size(), 6U);  // of 8
}

TEST_F(Encoder, PaddingHasNoPart) {
  torch::manual_seed(1);
  const Workload workload = encoder_toy_workload(3);
  const auto model = workload.make_model(torch::kCPU);
  const Batch batch = workload.make_batch();
  Batch wider = batch;
  wider.input = torch::nn::functional::pad(batch.input, torch::nn::functional::PadFuncOptions({0, 2}).value(5));
  wider.target = torch::nn::functional::pad(batch.target, torch::nn::functional::PadFuncOptions({0, 2}).value(-100));
  EXPECT_NEAR(model->loss(wider).item<double>(), model->loss(batch).item<double>(), 1e-5);
}

TEST_F(Encoder, FlopsAndItemsAreThoseOfItsBatches) {
  torch::manual_seed(1);
  const Workload workload = encoder_workload(4);
  double flops = 0;
  double items = 0;
  for (const Batch& batch : workload.make_batches()) {
    const auto tokens = static_cast<double>(batch.input.size(1));
    // Per layer and token 12 W^2 in products with weights and 2 T W in attention; a head of W^2 + W V.
    flops += 6 * 4 * tokens * (12 * (12.0 * 768 * 768 + 2 * tokens * 768) + 768.0 * 768 + 768.0 * 30'522);
    items += batch.lengths.sum().item<double>();
  }
  EXPECT_NEAR(workload.flops / flops, 1, 1e-12);
  EXPECT_EQ(workload.items, items);
}

TEST_F(Encoder, RunTakesItsBatchesInTurn) {
  const Workload workload = encoder_toy_workload(2);
  TrainingRun run(workload, {}, torch::kCPU, 1);
  ASSERT_EQ(run.batches(), 8U);
  const torch::Tensor first = run.batch().input;
  run.step();
  EXPECT_FALSE(torch::equal(run.batch().input, first));
  for (int i = 1; i < 8; ++i) run.step();
  EXPECT_TRUE(torch::equal(run.batch().input, first));
}

TEST_F(Encoder, LearnsAndRepeatsItselfExactly) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    TrainingRun run(encoder_toy_workload(4), {.precision = precision}, torch::kCPU, 1);
    TrainingRun again(encoder_toy_workload(4), {.precision = precision}, torch::kCPU, 1);
    const auto losses = losses_of(run, 48);
    EXPECT_EQ(losses_of(again, 48), losses);
    EXPECT_NEAR(losses.front(), std::log(100.0), 0.3);
    EXPECT_LT(losses.back(), losses[7]);  // the same batch, five rounds later
  }
}

// The allocators' exact check depends on it.
TEST_F(Encoder, RepeatsItselfExactlyOnTheDevice) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  TrainingRun expected(encoder_toy_workload(4), {}, torch::kCPU, 1);
  TrainingRun run(encoder_toy_workload(4), {}, torch::kCUDA, 1);
  const auto weights = run.model().parameters();  // drawn by the device's own generator
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i].detach().copy_(expected.model().parameters()[i].detach());
  }
  EXPECT_LT(largest_deviation(losses_of(run, 16), losses_of(expected, 16)), 1e-3);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    TrainingRun one(encoder_workload(4), {.precision = precision}, torch::kCUDA, 1);
    TrainingRun other(encoder_workload(4), {.precision = precision}, torch::kCUDA, 1);
    EXPECT_EQ(losses_of(one, 20), losses_of(other, 20));
  }
}

}  // namespace
}  // namespace gpulift
