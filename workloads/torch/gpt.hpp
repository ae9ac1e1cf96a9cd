#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "checkpointing.hpp"
#include "model.hpp"
#include "workload.hpp"

namespace gpulift {

/// How a GPT computes attention.
enum class Attention {
  kExplicit,  // softmax(Q K^T / sqrt d) V, one operation after the other
  kSdpa,      // at::scaled_dot_product_attention: the back ends that are switched on decide
};

/// The sizes of a GPT-2.
struct GptConfig {
  std::int64_t layers = 12;
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t tokens = 1024;       // of a row, and positions that the model has
  std::int64_t vocabulary = 50304;  // 50257, padded as those who train it do: products with an odd side are slow
};

/// 124M parameters: A. Radford et al., "Language models are unsupervised multitask learners", 2019.
GptConfig gpt2_config();
/// Four of its layers and 128 tokens: bound by launches at a small batch.
GptConfig gpt_small_config();
/// For tests, and for machines without a GPU.
GptConfig gpt_toy_config();

/// A GPT-2 without dropout. Parameters are named, shaped and initialised as in Hugging Face's GPT2LMHeadModel; the
/// output layer's weight is transformer.wte.weight, and is saved under that name alone, as Hugging Face does.
class Gpt : public Model, public Checkpointable {
 public:
  /// Its large weights are on the device at once; to(device) brings the norms there.
  explicit Gpt(const GptConfig& config, torch::Device device = torch::kCPU);

  /// Logits [N, T, vocabulary] of tokens [N, T].
  torch::Tensor forward(const Batch& batch) override;
  torch::Tensor loss(const Batch& batch) override;

  void use_attention(Attention attention) { attention_ = attention; }  // at first kSdpa
  void use_checkpointing(Checkpointing policy) override { checkpointing_ = policy; }

 private:
  class Transformer;

  std::shared_ptr<Transformer> transformer_;
  Attention attention_ = Attention::kSdpa;
  Checkpointing checkpointing_ = Checkpointing::kNone;
};

/// Causal attention of [N, heads, T, d]. `future` ([T, T], true where a key is later than the query) is what the
/// explicit form hides; the other needs none.
torch::Tensor causal_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                               Attention attention, const torch::Tensor& future);

/// A GPT that learns synthetic tokens: TokenChain(config.vocabulary), which has the best possible loss.
Workload gpt_workload(const GptConfig& config, std::int64_t batch_size);
Workload gpt2_workload(std::int64_t batch_size);
Workload gpt_small_workload(std::int64_t batch_size);
Workload gpt_toy_workload(std::int64_t batch_size);

}  // namespace gpulift
