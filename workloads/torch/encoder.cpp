#include "encoder.hpp"

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lengths.hpp"
#include "tokens.hpp"

namespace gpulift {
namespace {

constexpr std::size_t kBatches = 8;
constexpr std::uint64_t kLengthSeed = 20'180'911;  // fixed: the cost of a step is then known before its data
constexpr double kMaskedShare = 0.15;
constexpr double kEpsilon = 1e-12;
constexpr double kInitDeviation = 0.02;
constexpr std::int64_t kNoTarget = -100;

struct Config {
  std::int64_t symbols;
  std::int64_t width;
  std::int64_t heads;
  std::int64_t layers;
  LengthDistribution lengths;
};

/// Registers a module under a path such as "attention.output.dense", with plain modules on the way.
template <typename Holder>
Holder add(torch::nn::Module& root, const std::string& path, Holder module) {
  const auto dot = path.find('.');
  if (dot == std::string::npos) return root.register_module(path, std::move(module));
  const std::string first = path.substr(0, dot);
  const auto children = root.named_children();
  const auto* found = children.find(first);
  const auto child = found != nullptr ? *found : root.register_module(first, std::make_shared<torch::nn::Module>());
  return add(*child, path.substr(dot + 1), std::move(module));
}

torch::nn::LayerNorm norm_of(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(kEpsilon));
}

class Layer : public torch::nn::Module {
 public:
  explicit Layer(const Config& config)
      : heads_(config.heads),
        query_(add(*this, "attention.self.query", torch::nn::Linear(config.width, config.width))),
        key_(add(*this, "attention.self.key", torch::nn::Linear(config.width, config.width))),
        value_(add(*this, "attention.self.value", torch::nn::Linear(config.width, config.width))),
        attended_(add(*this, "attention.output.dense", torch::nn::Linear(config.width, config.width))),
        attended_norm_(add(*this, "attention.output.LayerNorm", norm_of(config.width))),
        wide_(add(*this, "intermediate.dense", torch::nn::Linear(config.width, 4 * config.width))),
        narrow_(add(*this, "output.dense", torch::nn::Linear(4 * config.width, config.width))),
        norm_(add(*this, "output.LayerNorm", norm_of(config.width))) {}

  /// Tokens look at those for which `valid` [N, 1, 1, T] is true.
  torch::Tensor forward(const torch::Tensor& hidden, const torch::Tensor& valid) {
    const torch::Tensor mixed = at::scaled_dot_product_attention(by_head(query_(hidden)), by_head(key_(hidden)),
                                                                 by_head(value_(hidden)), valid);
    const torch::Tensor attended = attended_norm_(attended_(mixed.transpose(1, 2).flatten(2)) + hidden);
    return norm_(narrow_(torch::gelu(wide_(attended))) + attended);
  }

 private:
  torch::Tensor by_head(const torch::Tensor& projected) const {
    return projected.unflatten(-1, {heads_, -1}).transpose(1, 2);
  }

  std::int64_t heads_;
  torch::nn::Linear query_;
  torch::nn::Linear key_;
  torch::nn::Linear value_;
  torch::nn::Linear attended_;
  torch::nn::LayerNorm attended_norm_;
  torch::nn::Linear wide_;
  torch::nn::Linear narrow_;
  torch::nn::LayerNorm norm_;
};

class Encoder : public Model {
 public:
  explicit Encoder(const Config& config)
      : words_(add(*this, "bert.embeddings.word_embeddings", torch::nn::Embedding(config.symbols, config.width))),
        positions_(add(*this, "bert.embeddings.position_embeddings",
                       torch::nn::Embedding(config.lengths.longest, config.width))),
        types_(add(*this, "bert.embeddings.token_type_embeddings", torch::nn::Embedding(2, config.width))),
        norm_(add(*this, "bert.embeddings.LayerNorm", norm_of(config.width))),
        layers_(add(*this, "bert.encoder.layer", torch::nn::ModuleList())),
        transform_(add(*this, "cls.predictions.transform.dense", torch::nn::Linear(config.width, config.width))),
        transform_norm_(add(*this, "cls.predictions.transform.LayerNorm", norm_of(config.width))) {
    for (std::int64_t i = 0; i < config.layers; ++i) layers_->push_back(std::make_shared<Layer>(config));
    bias_ = named_modules("", false)["cls.predictions"]->register_parameter("bias", torch::zeros({config.symbols}));
  }

  /// Draws the first weights where the parameters are.
  void initialise() {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : named_parameters()) {
      const bool is_bias = parameter.key().ends_with("bias");
      const bool is_norm = parameter.key().find("LayerNorm") != std::string::npos;
      if (is_bias) parameter.value().zero_();
      if (!is_bias && !is_norm) parameter.value().normal_(0, kInitDeviation);
    }
  }

  torch::Tensor forward(const Batch& batch) override {
    const std::int64_t tokens = batch.input.size(1);
    const torch::Tensor place = torch::arange(tokens, batch.input.options());
    const torch::Tensor valid = (place < batch.lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(1);
    torch::Tensor hidden = words_(batch.input) + positions_->weight.narrow(0, 0, tokens) + types_->weight[0];
    hidden = norm_(hidden);
    for (const auto& layer : *layers_) hidden = layer->as<Layer>()->forward(hidden, valid);
    hidden = transform_norm_(torch::gelu(transform_(hidden)));
    return torch::nn::functional::linear(hidden, words_->weight, bias_);
  }

  torch::Tensor loss(const Batch& batch) override {
    return cross_entropy(forward(batch).to(torch::kFloat32), batch.target);
  }

 private:
  torch::nn::Embedding words_;
  torch::nn::Embedding positions_;
  torch::nn::Embedding types_;
  torch::nn::LayerNorm norm_;
  torch::nn::ModuleList layers_;
  torch::nn::Linear transform_;
  torch::nn::LayerNorm transform_norm_;
  torch::Tensor bias_;  // the decoder's; its weight is that of the word embeddings
};

/// Symbol 0 pads and the last one masks. Of the valid tokens, some are masked and are what is to be found; the first of
/// each row always is, so that no batch is without.
Batch batch_of(const Config& config, const TokenChain& chain, const std::vector<std::int64_t>& lengths) {
  const auto rows = static_cast<std::int64_t>(lengths.size());
  const std::int64_t tokens = *std::max_element(lengths.begin(), lengths.end());
  const torch::Tensor length = torch::tensor(lengths, torch::kInt64);
  const torch::Tensor place = torch::arange(tokens, torch::kInt64);
  const torch::Tensor valid = place < length.unsqueeze(1);
  const torch::Tensor words = chain.sample(rows, tokens) + 1;
  const torch::Tensor masked = valid & ((torch::rand({rows, tokens}) < kMaskedShare) | (place == 0));
  return {words.masked_fill(masked, config.symbols - 1).masked_fill(~valid, 0), words.masked_fill(~masked, kNoTarget),
          length};
}

/// Two per multiply-add; all positions are computed, padding too.
double forward_flops(const Config& config, double rows, double tokens) {
  const auto width = static_cast<double>(config.width);
  const double projections = 4 * width * width + 2 * width * 4 * width;
  const double attention = 2 * tokens * width;  // scores and values, per token
  const double head = width * width + width * static_cast<double>(config.symbols);
  return 2 * rows * tokens * (static_cast<double>(config.layers) * (projections + attention) + head);
}

Workload workload_of(const Config& config, std::int64_t batch_size) {
  const auto rows = static_cast<std::size_t>(batch_size);
  std::vector<std::vector<std::int64_t>> lengths;
  for (std::size_t i = 0; i < kBatches; ++i) lengths.push_back(draw_lengths(config.lengths, rows, kLengthSeed + i));
  Workload workload;
  workload.make_model = [config](torch::Device device) {
    const auto model = std::make_shared<Encoder>(config);
    model->to(device);
    model->initialise();
    return model;
  };
  workload.make_batches = [config, lengths] {
    const TokenChain chain(config.symbols - 2);
    std::vector<Batch> batches;
    for (const auto& of_batch : lengths) batches.push_back(batch_of(config, chain, of_batch));
    return batches;
  };
  workload.make_batch = [make_batches = workload.make_batches] { return make_batches().front(); };
  for (const auto& of_batch : lengths) {
    const auto longest = static_cast<double>(*std::max_element(of_batch.begin(), of_batch.end()));
    workload.flops += 3 * forward_flops(config, static_cast<double>(rows), longest);  // one forward, two backward
    for (const std::int64_t length : of_batch) workload.items += static_cast<double>(length);
  }
  workload.item = "token";  // padding is none
  workload.rule = {.learning_rate = 1e-4};
  return workload;
}

}  // namespace

Workload encoder_workload(std::int64_t batch_size) {
  return workload_of({.symbols = 30'522, .width = 768, .heads = 12, .layers = 12, .lengths = {}}, batch_size);
}

Workload encoder_toy_workload(std::int64_t batch_size) {
  const LengthDistribution lengths{.mean = 12, .sigma = 0.6, .shortest = 4, .longest = 24};
  return workload_of({.symbols = 100, .width = 32, .heads = 4, .layers = 2, .lengths = lengths}, batch_size);
}

}  // namespace gpulift
