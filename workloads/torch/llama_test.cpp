#include "llama.hpp"

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tokens.hpp"
#include "training.hpp"
#include "workload.hpp"

namespace gpulift {
namespace {

TEST(Llama, HasTheParametersOfLlama1B) {
  const Llama model(llama_1b_config(), torch::kMeta);  // shapes alone: the weights are 5 GB
  const auto parameters = model.named_parameters();
  std::int64_t count = 0;
  for (const auto& parameter : parameters) count += parameter.value().numel();
  EXPECT_EQ(count, 1'235'814'400);
  EXPECT_EQ(parameters.size(), 16 * 9 + 2);
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> expected{
      {"embed_tokens", {128256, 2048}},
      {"layers.0.input_layernorm", {2048}},
      {"layers.0.self_attn.q_proj", {2048, 2048}},
      {"layers.15.self_attn.k_proj", {512, 2048}},
      {"layers.15.self_attn.v_proj", {512, 2048}},
      {"layers.0.self_attn.o_proj", {2048, 2048}},
      {"layers.0.post_attention_layernorm", {2048}},
      {"layers.15.mlp.gate_proj", {8192, 2048}},
      {"layers.15.mlp.up_proj", {8192, 2048}},
      {"layers.15.mlp.down_proj", {2048, 8192}},
      {"norm", {2048}},
  };
  for (const auto& [name, sizes] : expected) EXPECT_EQ(parameters["model." + name + ".weight"].sizes(), sizes) << name;
}

TEST(Llama, BeginsAsHuggingFacesDoes) {
  torch::manual_seed(1);
  const Llama model(llama_toy_config());
  for (const auto& parameter : model.named_parameters()) {
    const torch::Tensor& weight = parameter.value();
    if (parameter.key().find("norm") != std::string::npos) {
      EXPECT_TRUE(torch::equal(weight, torch::ones_like(weight))) << parameter.key();
    } else {
      EXPECT_NEAR(weight.mean().item<double>(), 0, 2e-3) << parameter.key();
      EXPECT_NEAR(weight.std().item<double>(), 0.02, 2e-3) << parameter.key();
    }
  }
}

TEST(Llama, CountsTheFlopsOfItsProducts) {
  // By hand, of a token in each of 16 layers: q_proj and o_proj, k_proj and v_proj of a quarter of the heads, three
  // products of SwiGLU, two of attention over half of 4096 tokens; then the head. Three products for each.
  const double per_token =
      3 * (16 * (4.0 * 2048 * 2048 + 4.0 * 2048 * 512 + 6.0 * 2048 * 8192 + 4.0 * 2048 * 2048) + 2.0 * 2048 * 128256);
  const Workload workload = make_workload("llama_1b", 2);
  EXPECT_DOUBLE_EQ(workload.flops, 2 * 4096 * per_token);
  EXPECT_EQ(workload.items, 8192);
  EXPECT_EQ(workload.item, "token");
}

TEST(Llama, PredictsFromThePastAlone) {
  torch::manual_seed(1);
  Llama model(llama_toy_config());
  const torch::NoGradGuard no_grad;
  const torch::Tensor tokens = torch::randint(0, 64, {2, 32}, torch::kInt64);
  torch::Tensor changed = tokens.clone();
  changed.narrow(1, 20, 12) = (tokens.narrow(1, 20, 12) + 1) % 64;
  const torch::Tensor before = model.forward({tokens, tokens});
  const torch::Tensor after = model.forward({changed, changed});
  EXPECT_EQ(before.sizes(), (std::vector<std::int64_t>{2, 32, 64}));
  EXPECT_TRUE(torch::allclose(before.narrow(1, 0, 20), after.narrow(1, 0, 20), 1e-5, 1e-6));
  EXPECT_FALSE(torch::allclose(before.narrow(1, 20, 1), after.narrow(1, 20, 1), 1e-3, 1e-3));
}

TEST(Llama, KnowsTheOrderOfItsTokensByTheirAngles) {
  LlamaConfig config = llama_toy_config();
  config.layers = 1;  // a second one would know it by what the tokens of the first have seen
  torch::manual_seed(1);
  Llama model(config);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& weight : model.parameters()) {
    if (weight.dim() == 2) weight.mul_(10);  // at first attention is nearly even
  }
  const torch::Tensor tokens = torch::arange(32).unsqueeze(0);
  const torch::Tensor other = torch::cat({tokens.narrow(1, 0, 31).flip(1), tokens.narrow(1, 31, 1)}, 1);
  const torch::Tensor last = model.forward({tokens, tokens}).select(1, 31);
  EXPECT_FALSE(torch::allclose(model.forward({other, other}).select(1, 31), last, 1e-2, 1e-2));
}

TEST(Llama, TakesRowsThatAreShorterOrInAnotherTypeThanTheLast) {
  torch::manual_seed(1);
  Llama model(llama_toy_config());
  const torch::NoGradGuard no_grad;
  const torch::Tensor tokens = torch::randint(0, 64, {2, 32}, torch::kInt64);
  const torch::Tensor whole = model.forward({tokens, tokens});
  const torch::Tensor beginning = tokens.narrow(1, 0, 5);
  EXPECT_TRUE(torch::allclose(model.forward({beginning, beginning}), whole.narrow(1, 0, 5), 1e-5, 1e-6));
  model.to(torch::kFloat64);
  const torch::Tensor exact = model.forward({tokens, tokens});
  EXPECT_EQ(exact.scalar_type(), torch::kFloat64);
  EXPECT_TRUE(torch::allclose(exact.to(torch::kFloat32), whole, 1e-4, 1e-5));
}

TEST(Llama, IsTheSameOnTheDeviceInBf16) {
  if (!torch::cuda::is_available()) GTEST_SKIP();
  torch::manual_seed(1);
  Llama model(llama_toy_config());
  const torch::NoGradGuard no_grad;
  const torch::Tensor tokens = torch::randint(0, 64, {2, 32}, torch::kInt64);
  const torch::Tensor expected = model.forward({tokens, tokens});
  model.to(torch::kCUDA);
  model.to(torch::kBFloat16);
  const torch::Tensor on_device = tokens.to(torch::kCUDA);
  const torch::Tensor found = model.forward({on_device, on_device}).to(torch::kCPU, torch::kFloat32);
  EXPECT_TRUE(torch::allclose(found, expected, 0.05, 0.02));
}

TEST(Llama, HasALossInFp32ForEveryType) {
  torch::manual_seed(1);
  Llama model(llama_toy_config());
  const Batch batch = llama_toy_workload(4).make_batch();
  const torch::Tensor loss = model.loss(batch);
  EXPECT_NEAR(loss.item<double>(), std::log(64.0), 0.15);  // without positions in it a state is much like its own word
  model.to(torch::kBFloat16);
  const torch::Tensor half = model.loss(batch);
  EXPECT_EQ(half.scalar_type(), torch::kFloat32);
  EXPECT_NEAR(half.item<double>(), loss.item<double>(), 0.02);
}

TEST(Llama, LearnsTheEntropyOfItsTokens) {
  const double best = TokenChain(llama_toy_config().vocabulary).entropy_nats();
  Workload workload = make_workload("llama_toy", 32);
  workload.rule.learning_rate = 1e-2;
  TrainingRun run(workload, {}, torch::kCPU, 11);
  for (int i = 0; i < 150; ++i) {
    run.use_batch(workload.make_batch());
    run.step();
  }
  const torch::NoGradGuard no_grad;
  const double loss = run.model().loss(llama_toy_workload(512).make_batch()).item<double>();
  EXPECT_LT(loss, 1.1 * best);
  EXPECT_GT(loss, 0.98 * best);  // nobody can be better, but for the luck of a sample
}

}  // namespace
}  // namespace gpulift
