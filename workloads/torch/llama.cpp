#include "llama.hpp"

#include <ATen/autocast_mode.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/utils.h>

#include <memory>
#include <vector>

#include "tokens.hpp"

namespace gpulift {
namespace {

constexpr double kInitialDeviation = 0.02;

/// A weight [rows, columns]: of a linear layer without bias, or looked up.
class Weight : public torch::nn::Module {
 public:
  Weight(std::int64_t rows, std::int64_t columns, torch::Device device)
      : weight_(register_parameter("weight", torch::empty({rows, columns}, device))) {
    torch::nn::init::normal_(weight_, 0, kInitialDeviation);
  }

  torch::Tensor product(const torch::Tensor& input) const { return torch::linear(input, weight_); }
  torch::Tensor rows(const torch::Tensor& indices) const { return torch::embedding(weight_, indices); }

 private:
  torch::Tensor weight_;
};

class Norm : public torch::nn::Module {
 public:
  Norm(const LlamaConfig& config, torch::Device device)
      : epsilon_(config.norm_epsilon), weight_(register_parameter("weight", torch::ones({config.width}, device))) {}

  /// Under autocast in its type, which it would else cast to anew for each of several products.
  torch::Tensor forward(const torch::Tensor& input) const {
    const torch::Tensor normal = torch::rms_norm(input, weight_.sizes(), weight_, epsilon_);
    const torch::DeviceType device = normal.device().type();
    return at::autocast::is_autocast_enabled(device) ? normal.to(at::autocast::get_autocast_dtype(device)) : normal;
  }

 private:
  double epsilon_;
  torch::Tensor weight_;
};

/// Rotary positions (J. Su et al., arXiv:2104.09864): turns each pair of a head's values by an angle in proportion to
/// the token's place. A value's partner is half a head away, as Hugging Face's weights have it.
class Rotation {
 public:
  explicit Rotation(const LlamaConfig& config)
      : size_(config.width / config.heads), tokens_(config.tokens), theta_(config.rope_theta) {}

  /// Of queries or keys [N, heads, T, d].
  torch::Tensor turned(const torch::Tensor& input) {
    if (!cosines_.defined() || cosines_.device() != input.device() || cosines_.dtype() != input.dtype()) {
      make_tables(input.options());
    }
    const std::int64_t length = input.size(2);
    const std::vector<torch::Tensor> halves = input.chunk(2, -1);
    const torch::Tensor partners = torch::cat({-halves[1], halves[0]}, -1);
    return input * cosines_.narrow(0, 0, length) + partners * sines_.narrow(0, 0, length);
  }

 private:
  /// Angles are in FP32 whatever the type, as Hugging Face has them: 16 bits do not tell late tokens apart.
  void make_tables(const torch::TensorOptions& options) {
    const torch::NoGradGuard no_grad;
    const auto in_fp32 = torch::TensorOptions(options.device()).dtype(torch::kFloat32);
    const torch::Tensor exponents = torch::arange(0, size_, 2, in_fp32) / size_;
    const torch::Tensor places = torch::arange(tokens_, in_fp32);
    const torch::Tensor angles = places.unsqueeze(1) * torch::pow(theta_, exponents).reciprocal();
    const torch::Tensor of_both = torch::cat({angles, angles}, -1);
    cosines_ = of_both.cos().to(options.dtype());
    sines_ = of_both.sin().to(options.dtype());
  }

  std::int64_t size_;
  std::int64_t tokens_;
  double theta_;
  torch::Tensor cosines_;  // [tokens, d], of the device and type that were asked for last; no part of the state
  torch::Tensor sines_;
};

class SelfAttention : public torch::nn::Module {
 public:
  SelfAttention(const LlamaConfig& config, torch::Device device) : head_size_(config.width / config.heads) {
    const std::int64_t key_width = config.key_heads * head_size_;
    q_proj_ = register_module("q_proj", std::make_shared<Weight>(config.width, config.width, device));
    k_proj_ = register_module("k_proj", std::make_shared<Weight>(key_width, config.width, device));
    v_proj_ = register_module("v_proj", std::make_shared<Weight>(key_width, config.width, device));
    o_proj_ = register_module("o_proj", std::make_shared<Weight>(config.width, config.width, device));
  }

  torch::Tensor forward(const torch::Tensor& input, Rotation& rotation) const {
    const torch::Tensor query = rotation.turned(by_head(q_proj_->product(input)));
    torch::Tensor key = rotation.turned(by_head(k_proj_->product(input)));
    torch::Tensor value = by_head(v_proj_->product(input));
    const bool shares_keys = query.scalar_type() != torch::kFloat32;  // of FP32 torch has no such kernel
    if (!shares_keys) {
      const std::int64_t shared = query.size(1) / key.size(1);
      key = key.repeat_interleave(shared, 1);
      value = value.repeat_interleave(shared, 1);
    }
    const torch::Tensor mixed =
        at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true,
                                         /*scale=*/{}, /*enable_gqa=*/shares_keys);
    return o_proj_->product(mixed.transpose(1, 2).reshape(input.sizes()));
  }

 private:
  torch::Tensor by_head(const torch::Tensor& part) const {
    return part.view({part.size(0), part.size(1), -1, head_size_}).transpose(1, 2);
  }

  std::int64_t head_size_;
  std::shared_ptr<Weight> q_proj_;
  std::shared_ptr<Weight> k_proj_;
  std::shared_ptr<Weight> v_proj_;
  std::shared_ptr<Weight> o_proj_;
};

/// SwiGLU: N. Shazeer, arXiv:2002.05202.
class FeedForward : public torch::nn::Module {
 public:
  FeedForward(const LlamaConfig& config, torch::Device device)
      : gate_proj_(register_module("gate_proj", std::make_shared<Weight>(config.hidden, config.width, device))),
        up_proj_(register_module("up_proj", std::make_shared<Weight>(config.hidden, config.width, device))),
        down_proj_(register_module("down_proj", std::make_shared<Weight>(config.width, config.hidden, device))) {}

  torch::Tensor forward(const torch::Tensor& input) const {
    return down_proj_->product(torch::silu(gate_proj_->product(input)) * up_proj_->product(input));
  }

 private:
  std::shared_ptr<Weight> gate_proj_;
  std::shared_ptr<Weight> up_proj_;
  std::shared_ptr<Weight> down_proj_;
};

class LlamaBlock : public torch::nn::Module {
 public:
  LlamaBlock(const LlamaConfig& config, torch::Device device)
      : input_layernorm_(register_module("input_layernorm", std::make_shared<Norm>(config, device))),
        self_attn_(register_module("self_attn", std::make_shared<SelfAttention>(config, device))),
        post_attention_layernorm_(register_module("post_attention_layernorm", std::make_shared<Norm>(config, device))),
        mlp_(register_module("mlp", std::make_shared<FeedForward>(config, device))) {}

  torch::Tensor forward(const torch::Tensor& input, Rotation& rotation) const {
    const torch::Tensor attended = input + self_attn_->forward(input_layernorm_->forward(input), rotation);
    return attended + mlp_->forward(post_attention_layernorm_->forward(attended));
  }

 private:
  std::shared_ptr<Norm> input_layernorm_;
  std::shared_ptr<SelfAttention> self_attn_;
  std::shared_ptr<Norm> post_attention_layernorm_;
  std::shared_ptr<FeedForward> mlp_;
};

/// Of one row, forward: the products alone, two operations per multiply-add. Of attention the half that is not masked
/// (METHOD.md, "Operations of a model").
double forward_flops_of_row(const LlamaConfig& config) {
  const auto tokens = static_cast<double>(config.tokens);
  const auto width = static_cast<double>(config.width);
  const double key_width = width * static_cast<double>(config.key_heads) / static_cast<double>(config.heads);
  const double projections = 2 * width * (2 * width + 2 * key_width);  // per token: q_proj, o_proj, k_proj, v_proj
  const double feed_forward = 2 * width * static_cast<double>(config.hidden) * 3;
  const double attention = 2 * tokens * width * 2 / 2;  // per token: scores, and values weighted by them
  const double head = 2 * width * static_cast<double>(config.vocabulary);
  return tokens * (static_cast<double>(config.layers) * (projections + feed_forward + attention) + head);
}

}  // namespace

class Llama::Decoder : public torch::nn::Module {
 public:
  Decoder(const LlamaConfig& config, torch::Device device)
      : rotation_(config),
        embed_tokens_(
            register_module("embed_tokens", std::make_shared<Weight>(config.vocabulary, config.width, device))),
        layers_(register_module("layers", torch::nn::ModuleList())) {
    for (std::int64_t i = 0; i < config.layers; ++i) {
      blocks_.push_back(std::make_shared<LlamaBlock>(config, device));
      layers_->push_back(blocks_.back());
    }
    norm_ = register_module("norm", std::make_shared<Norm>(config, device));
  }

  torch::Tensor logits(const torch::Tensor& tokens, Checkpointing policy) {
    torch::Tensor state = embed_tokens_->rows(tokens);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto run = [block = blocks_[i].get(), rotation = &rotation_](const torch::Tensor& input) {
        return block->forward(input, *rotation);
      };
      const bool again = recomputes(policy, static_cast<std::int64_t>(i));
      state = again ? checkpoint(run, state, Randomness::kNone) : run(state);
    }
    return embed_tokens_->product(norm_->forward(state));
  }

 private:
  Rotation rotation_;
  std::shared_ptr<Weight> embed_tokens_;
  torch::nn::ModuleList layers_;
  std::vector<std::shared_ptr<LlamaBlock>> blocks_;
  std::shared_ptr<Norm> norm_;
};

Llama::Llama(const LlamaConfig& config, torch::Device device)
    : decoder_(register_module("model", std::make_shared<Decoder>(config, device))) {}

torch::Tensor Llama::forward(const Batch& batch) { return decoder_->logits(batch.input, checkpointing_); }

torch::Tensor Llama::loss(const Batch& batch) { return cross_entropy(forward(batch), batch.target); }

LlamaConfig llama_1b_config() { return {}; }

LlamaConfig llama_toy_config() {
  return {.layers = 2, .width = 64, .heads = 4, .key_heads = 2, .hidden = 128, .tokens = 32, .vocabulary = 64};
}

Workload llama_workload(const LlamaConfig& config, std::int64_t batch_size) {
  Workload workload;
  workload.make_model = [config](torch::Device device) { return std::make_shared<Llama>(config, device); };
  workload.make_batch = [config, batch_size]() -> Batch {
    const torch::Tensor tokens = TokenChain(config.vocabulary).sample(batch_size, config.tokens + 1);
    return {tokens.narrow(1, 0, config.tokens).contiguous(), tokens.narrow(1, 1, config.tokens).contiguous()};
  };
  // A product forward is two backward: for its weight, and for its input.
  workload.flops = 3 * static_cast<double>(batch_size) * forward_flops_of_row(config);
  workload.items = static_cast<double>(batch_size * config.tokens);
  workload.item = "token";
  // As GPT-2's: a third of the usual rate, since the steps of a check have no warm-up.
  workload.rule = {.learning_rate = 1e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95};
  return workload;
}

Workload llama_1b_workload(std::int64_t batch_size) { return llama_workload(llama_1b_config(), batch_size); }

Workload llama_toy_workload(std::int64_t batch_size) {
  Workload workload = llama_workload(llama_toy_config(), batch_size);
  workload.rule.learning_rate = 3e-3;  // small models bear larger steps
  return workload;
}

}  // namespace gpulift
