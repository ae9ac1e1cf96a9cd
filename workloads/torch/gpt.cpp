#include "gpt.hpp"

#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tokens.hpp"

namespace gpulift {
namespace {

constexpr double kInitialDeviation = 0.02;

/// Hugging Face's Conv1D: a linear layer with the weight [in, out].
class Conv1D : public torch::nn::Module {
 public:
  Conv1D(std::int64_t in, std::int64_t out, double deviation, torch::Device device)
      : weight_(register_parameter("weight", torch::empty({in, out}, device))),
        bias_(register_parameter("bias", torch::zeros({out}))) {
    torch::nn::init::normal_(weight_, 0, deviation);
  }

  torch::Tensor forward(const torch::Tensor& input) const {
    const std::int64_t rows = input.size(0);
    const std::int64_t tokens = input.size(1);
    return torch::addmm(bias_, input.reshape({rows * tokens, -1}), weight_).view({rows, tokens, -1});
  }

 private:
  torch::Tensor weight_;
  torch::Tensor bias_;
};

/// A weight [rows, width] that is looked up.
class Table : public torch::nn::Module {
 public:
  Table(std::int64_t rows, std::int64_t width, torch::Device device)
      : weight_(register_parameter("weight", torch::empty({rows, width}, device))) {
    torch::nn::init::normal_(weight_, 0, kInitialDeviation);
  }

  const torch::Tensor& weight() const { return weight_; }

 private:
  torch::Tensor weight_;
};

/// Layers that end in a residual sum start smaller, the more there are.
double deviation_before_sum(const GptConfig& config) {
  return kInitialDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
}

class SelfAttention : public torch::nn::Module {
 public:
  SelfAttention(const GptConfig& config, torch::Device device)
      : heads_(config.heads),
        c_attn_(register_module("c_attn",
                                std::make_shared<Conv1D>(config.width, 3 * config.width, kInitialDeviation, device))),
        c_proj_(register_module(
            "c_proj", std::make_shared<Conv1D>(config.width, config.width, deviation_before_sum(config), device))) {}

  torch::Tensor forward(const torch::Tensor& input, Attention attention, const torch::Tensor& future) const {
    const std::vector<torch::Tensor> parts = c_attn_->forward(input).chunk(3, -1);
    const torch::Tensor mixed =
        causal_attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), attention, future);
    return c_proj_->forward(mixed.transpose(1, 2).reshape(input.sizes()));
  }

 private:
  torch::Tensor by_head(const torch::Tensor& part) const {
    return part.view({part.size(0), part.size(1), heads_, -1}).transpose(1, 2);
  }

  std::int64_t heads_;
  std::shared_ptr<Conv1D> c_attn_;
  std::shared_ptr<Conv1D> c_proj_;
};

class FeedForward : public torch::nn::Module {
 public:
  FeedForward(const GptConfig& config, torch::Device device)
      : c_fc_(register_module("c_fc",
                              std::make_shared<Conv1D>(config.width, 4 * config.width, kInitialDeviation, device))),
        c_proj_(register_module(
            "c_proj", std::make_shared<Conv1D>(4 * config.width, config.width, deviation_before_sum(config), device))) {
  }

  torch::Tensor forward(const torch::Tensor& input) const {
    return c_proj_->forward(torch::gelu(c_fc_->forward(input), "tanh"));
  }

 private:
  std::shared_ptr<Conv1D> c_fc_;
  std::shared_ptr<Conv1D> c_proj_;
};

torch::nn::LayerNorm make_norm(const GptConfig& config) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width}));
}

class GptBlock : public torch::nn::Module {
 public:
  GptBlock(const GptConfig& config, torch::Device device)
      : ln_1_(register_module("ln_1", make_norm(config))),
        attn_(register_module("attn", std::make_shared<SelfAttention>(config, device))),
        ln_2_(register_module("ln_2", make_norm(config))),
        mlp_(register_module("mlp", std::make_shared<FeedForward>(config, device))) {}

  torch::Tensor forward(const torch::Tensor& input, Attention attention, const torch::Tensor& future) {
    const torch::Tensor attended = input + attn_->forward(ln_1_(input), attention, future);
    return attended + mlp_->forward(ln_2_(attended));
  }

 private:
  torch::nn::LayerNorm ln_1_;
  std::shared_ptr<SelfAttention> attn_;
  torch::nn::LayerNorm ln_2_;
  std::shared_ptr<FeedForward> mlp_;
};

/// Of one row, forward: the products alone, two operations per multiply-add. Of attention the half that is not masked
/// (METHOD.md, "Operations of a model"), though the explicit form computes all of it.
double forward_flops_of_row(const GptConfig& config) {
  const auto tokens = static_cast<double>(config.tokens);
  const auto width = static_cast<double>(config.width);
  const double linear = 2 * width * width * (3 + 1 + 4 + 4);  // per token: c_attn, attn.c_proj, c_fc, mlp.c_proj
  const double attention = 2 * tokens * width * 2 / 2;        // per token: scores, and values weighted by them
  const double head = 2 * width * static_cast<double>(config.vocabulary);
  return tokens * (static_cast<double>(config.layers) * (linear + attention) + head);
}

}  // namespace

class Gpt::Transformer : public torch::nn::Module {
 public:
  Transformer(const GptConfig& config, torch::Device device)
      : wte_(register_module("wte", std::make_shared<Table>(config.vocabulary, config.width, device))),
        wpe_(register_module("wpe", std::make_shared<Table>(config.tokens, config.width, device))),
        h_(register_module("h", torch::nn::ModuleList())),
        ln_f_(nullptr) {
    for (std::int64_t i = 0; i < config.layers; ++i) {
      blocks_.push_back(std::make_shared<GptBlock>(config, device));
      h_->push_back(blocks_.back());
    }
    ln_f_ = register_module("ln_f", make_norm(config));
  }

  torch::Tensor logits(const torch::Tensor& tokens, Attention attention, Checkpointing policy) {
    const std::int64_t length = tokens.size(1);
    torch::Tensor future;
    if (attention == Attention::kExplicit) {
      future = torch::ones({length, length}, torch::TensorOptions(tokens.device()).dtype(torch::kBool)).triu(1);
    }
    torch::Tensor state = torch::embedding(wte_->weight(), tokens) + wpe_->weight().narrow(0, 0, length);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto run = [block = blocks_[i].get(), attention, future](const torch::Tensor& input) {
        return block->forward(input, attention, future);
      };
      const bool again = recomputes(policy, static_cast<std::int64_t>(i));
      state = again ? checkpoint(run, state, Randomness::kNone) : run(state);
    }
    return torch::linear(ln_f_(state), wte_->weight());
  }

 private:
  std::shared_ptr<Table> wte_;
  std::shared_ptr<Table> wpe_;
  torch::nn::ModuleList h_;
  std::vector<std::shared_ptr<GptBlock>> blocks_;
  torch::nn::LayerNorm ln_f_;
};

Gpt::Gpt(const GptConfig& config, torch::Device device)
    : transformer_(register_module("transformer", std::make_shared<Transformer>(config, device))) {}

torch::Tensor Gpt::forward(const Batch& batch) { return transformer_->logits(batch.input, attention_, checkpointing_); }

torch::Tensor Gpt::loss(const Batch& batch) { return cross_entropy(forward(batch), batch.target); }

torch::Tensor causal_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                               Attention attention, const torch::Tensor& future) {
  if (attention == Attention::kSdpa) {
    return at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
  }
  torch::Tensor scores = torch::matmul(query, key.transpose(-2, -1));
  scores = scores * (1 / std::sqrt(static_cast<double>(query.size(-1))));
  scores = scores.masked_fill(future, -INFINITY);
  return torch::matmul(torch::softmax(scores, -1), value);
}

GptConfig gpt2_config() { return {}; }

GptConfig gpt_small_config() { return {.layers = 4, .tokens = 128}; }

GptConfig gpt_toy_config() { return {.layers = 2, .width = 64, .heads = 4, .tokens = 32, .vocabulary = 64}; }

Workload gpt_workload(const GptConfig& config, std::int64_t batch_size) {
  Workload workload;
  workload.make_model = [config](torch::Device device) { return std::make_shared<Gpt>(config, device); };
  workload.make_batch = [config, batch_size]() -> Batch {
    const torch::Tensor tokens = TokenChain(config.vocabulary).sample(batch_size, config.tokens + 1);
    return {tokens.narrow(1, 0, config.tokens).contiguous(), tokens.narrow(1, 1, config.tokens).contiguous()};
  };
  // A product forward is two backward: for its weight, and for its input.
  workload.flops = 3 * static_cast<double>(batch_size) * forward_flops_of_row(config);
  workload.items = static_cast<double>(batch_size * config.tokens);
  workload.item = "token";
  // A third of the usual rate, since the steps of a check have no warm-up: at 3e-4 a loss may leap, and then two runs
  // of the same kernels, some of which add in any order, are far apart (seen on one GPU: 38 % after 20 steps).
  workload.rule = {.learning_rate = 1e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95};
  return workload;
}

Workload gpt2_workload(std::int64_t batch_size) { return gpt_workload(gpt2_config(), batch_size); }

Workload gpt_small_workload(std::int64_t batch_size) { return gpt_workload(gpt_small_config(), batch_size); }

Workload gpt_toy_workload(std::int64_t batch_size) {
  Workload workload = gpt_workload(gpt_toy_config(), batch_size);
  workload.rule.learning_rate = 3e-3;  // small models bear larger steps
  return workload;
}

}  // namespace gpulift
