#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "checkpointing.hpp"
#include "model.hpp"
#include "workload.hpp"

namespace gpulift {

/// The sizes of a Llama.
struct LlamaConfig {
  std::int64_t layers = 16;
  std::int64_t width = 2048;
  std::int64_t heads = 32;     // of queries
  std::int64_t key_heads = 8;  // of keys and of values, each for heads / key_heads of queries
  std::int64_t hidden = 8192;  // between the products of a feed-forward part
  std::int64_t tokens = 4096;  // of a row, and positions that the model has
  std::int64_t vocabulary = 128256;
  double rope_theta = 500000;
  double norm_epsilon = 1e-5;
};

/// 1.24 billion parameters: the sizes of Llama 3.2 1B (A. Grattafiori et al., arXiv:2407.21783, describe the family),
/// without its other frequencies for rows of more than 8192 tokens.
LlamaConfig llama_1b_config();
/// For tests, and for machines without a GPU.
LlamaConfig llama_toy_config();

/// A Llama without biases and dropout. Parameters are named, shaped and initialised as in Hugging Face's
/// LlamaForCausalLM; the output layer's weight is model.embed_tokens.weight, and is saved under that name alone, as
/// Hugging Face does where embeddings are tied.
class Llama : public Model, public Checkpointable {
 public:
  /// Its weights are on the device at once.
  explicit Llama(const LlamaConfig& config, torch::Device device = torch::kCPU);

  /// Logits [N, T, vocabulary] of tokens [N, T].
  torch::Tensor forward(const Batch& batch) override;
  torch::Tensor loss(const Batch& batch) override;

  void use_checkpointing(Checkpointing policy) override { checkpointing_ = policy; }

 private:
  class Decoder;

  std::shared_ptr<Decoder> decoder_;
  Checkpointing checkpointing_ = Checkpointing::kNone;
};

/// A Llama that learns synthetic tokens: TokenChain(config.vocabulary), which has the best possible loss.
Workload llama_workload(const LlamaConfig& config, std::int64_t batch_size);
Workload llama_1b_workload(std::int64_t batch_size);
Workload llama_toy_workload(std::int64_t batch_size);

}  // namespace gpulift
