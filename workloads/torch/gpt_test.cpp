#include "gpt.hpp"

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tokens.hpp"
#include "training.hpp"
#include "workload.hpp"

namespace gpulift {
namespace {

std::int64_t parameter_count(Model& model) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

TEST(Gpt, HasTheParametersOfGpt2) {
  Gpt model(gpt2_config());
  EXPECT_EQ(parameter_count(model), 124475904);
  const auto parameters = model.named_parameters();
  EXPECT_EQ(parameters.size(), 148);
  EXPECT_EQ(parameters["transformer.wte.weight"].sizes(), (std::vector<std::int64_t>{50304, 768}));
  EXPECT_EQ(parameters["transformer.wpe.weight"].sizes(), (std::vector<std::int64_t>{1024, 768}));
  EXPECT_EQ(parameters["transformer.h.11.attn.c_attn.weight"].sizes(), (std::vector<std::int64_t>{768, 2304}));
  EXPECT_EQ(parameters["transformer.h.0.mlp.c_proj.weight"].sizes(), (std::vector<std::int64_t>{3072, 768}));
  for (const std::string part : {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"}) {
    EXPECT_TRUE(parameters.contains("transformer.h.0." + part + ".weight")) << part;
    EXPECT_TRUE(parameters.contains("transformer.h.0." + part + ".bias")) << part;
  }
  EXPECT_TRUE(parameters.contains("transformer.ln_f.weight"));
  EXPECT_NEAR(parameters["transformer.h.0.mlp.c_fc.weight"].std().item<double>(), 0.02, 1e-4);
  EXPECT_NEAR(parameters["transformer.h.0.mlp.c_proj.weight"].std().item<double>(), 0.02 / std::sqrt(24.0), 1e-4);
}

TEST(Gpt, CountsTheFlopsOfItsProducts) {
  // By hand: 12 layers of 24 * 768^2 + 4 * 768 * 1024 / 2, and 2 * 768 * 50304 of the head; three products for each.
  const double per_token = 3 * (12 * (24.0 * 768 * 768 + 2.0 * 1024 * 768) + 2.0 * 768 * 50304);
  const Workload workload = make_workload("gpt2", 2);
  EXPECT_DOUBLE_EQ(workload.flops, 2 * 1024 * per_token);
  EXPECT_EQ(workload.items, 2048);
  EXPECT_EQ(workload.item, "token");
}

TEST(Gpt, PredictsFromThePastAlone) {
  torch::manual_seed(1);
  Gpt model(gpt_toy_config());
  const torch::NoGradGuard no_grad;
  const torch::Tensor tokens = torch::randint(0, 64, {2, 32}, torch::kInt64);
  torch::Tensor changed = tokens.clone();
  changed.narrow(1, 20, 12) = (tokens.narrow(1, 20, 12) + 1) % 64;
  for (const Attention attention : {Attention::kExplicit, Attention::kSdpa}) {
    model.use_attention(attention);
    const torch::Tensor before = model.forward({tokens, tokens});
    const torch::Tensor after = model.forward({changed, changed});
    EXPECT_EQ(before.sizes(), (std::vector<std::int64_t>{2, 32, 64}));
    EXPECT_TRUE(torch::allclose(before.narrow(1, 0, 20), after.narrow(1, 0, 20), 1e-5, 1e-6));
    EXPECT_FALSE(torch::allclose(before.narrow(1, 20, 1), after.narrow(1, 20, 1), 1e-3, 1e-3));
  }
}

/// Output of causal attention, and the gradients of query, key and value.
std::vector<torch::Tensor> attention_and_gradients(Attention attention, torch::Device device, torch::ScalarType type) {
  torch::manual_seed(2);
  std::vector<torch::Tensor> inputs;
  for (int i = 0; i < 3; ++i) inputs.push_back(torch::randn({2, 4, 48, 16}).to(device, type).requires_grad_());
  const torch::Tensor future = torch::ones({48, 48}, torch::TensorOptions(device).dtype(torch::kBool)).triu(1);
  const torch::Tensor output = causal_attention(inputs[0], inputs[1], inputs[2], attention, future);
  (output.to(torch::kFloat32) * torch::linspace(-1, 1, output.numel()).view(output.sizes()).to(device))
      .sum()
      .backward();
  return {output.detach(), inputs[0].grad(), inputs[1].grad(), inputs[2].grad()};
}

TEST(Attention, IsTheSameInBothForms) {
  const auto explicit_form = attention_and_gradients(Attention::kExplicit, torch::kCPU, torch::kFloat32);
  const auto library = attention_and_gradients(Attention::kSdpa, torch::kCPU, torch::kFloat32);
  for (std::size_t i = 0; i < library.size(); ++i) {
    EXPECT_TRUE(torch::allclose(library[i], explicit_form[i], 1e-4, 1e-5)) << i;
  }
}

TEST(Attention, IsTheSameOnTheDeviceInBf16) {
  if (!torch::cuda::is_available()) GTEST_SKIP();
  const auto reference = attention_and_gradients(Attention::kExplicit, torch::kCPU, torch::kFloat32);
  for (const Attention attention : {Attention::kExplicit, Attention::kSdpa}) {
    const auto found = attention_and_gradients(attention, torch::kCUDA, torch::kBFloat16);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(torch::allclose(found[i].to(torch::kCPU, torch::kFloat32), reference[i], 0.05, 0.05)) << i;
    }
  }
}

TEST(Gpt, HasALossInFp32ForEveryType) {
  torch::manual_seed(1);
  Gpt model(gpt_toy_config());
  const Batch batch = gpt_toy_workload(4).make_batch();
  const torch::Tensor loss = model.loss(batch);
  EXPECT_NEAR(loss.item<double>(), std::log(64.0), 0.05);
  model.to(torch::kBFloat16);
  const torch::Tensor half = model.loss(batch);
  EXPECT_EQ(half.scalar_type(), torch::kFloat32);
  EXPECT_NEAR(half.item<double>(), loss.item<double>(), 0.02);
}

/// Trains on fresh tokens for each step, from `weights` on if there are any.
std::shared_ptr<TrainingRun> train_on_fresh_tokens(double learning_rate, int steps, std::uint64_t seed,
                                                   Model* weights) {
  Workload workload = make_workload("gpt_toy", 32);
  workload.rule.learning_rate = learning_rate;
  const auto start = [weights](Model& model) {
    if (weights == nullptr) return;
    const torch::NoGradGuard no_grad;
    at::_foreach_copy_(model.parameters(), weights->parameters());
  };
  auto run = std::make_shared<TrainingRun>(workload, TrainingOptions{.prepare = start}, torch::kCPU, seed);
  for (int i = 0; i < steps; ++i) {
    run->use_batch(workload.make_batch());
    run->step();
  }
  return run;
}

double loss_on_fresh_tokens(Model& model) {
  const torch::NoGradGuard no_grad;
  return model.loss(gpt_toy_workload(512).make_batch()).item<double>();
}

TEST(Gpt, LearnsTheEntropyOfItsTokens) {
  const double best = TokenChain(gpt_toy_config().vocabulary).entropy_nats();
  torch::manual_seed(11);
  Gpt untrained(gpt_toy_config());
  EXPECT_NEAR(loss_on_fresh_tokens(untrained), std::log(64.0), 0.05);  // at first it knows nothing
  const auto coarse = train_on_fresh_tokens(1e-2, 200, 11, nullptr);
  const auto fine = train_on_fresh_tokens(1e-3, 120, 12, &coarse->model());
  const double loss = loss_on_fresh_tokens(fine->model());
  EXPECT_LT(loss, 1.05 * best);
  EXPECT_GT(loss, 0.98 * best);  // nobody can be better, but for the luck of a sample
}

}  // namespace
}  // namespace gpulift
