#include "lstm.hpp"

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <memory>

#include "tokens.hpp"

namespace gpulift {
namespace {

struct Config {
  std::int64_t symbols;
  std::int64_t width;  // of the embedding and of the hidden state
  std::int64_t layers;
  std::int64_t tokens;  // of a row
};

class Lstm : public Model {
 public:
  explicit Lstm(const Config& config)
      : embedding_(register_module("embedding", torch::nn::Embedding(config.symbols, config.width))),
        lstm_(register_module(
            "lstm",
            torch::nn::LSTM(
                torch::nn::LSTMOptions(config.width, config.width).num_layers(config.layers).batch_first(true)))),
        decoder_(register_module("decoder", torch::nn::Linear(config.width, config.symbols))) {}

  torch::Tensor forward(const Batch& batch) override { return decoder_(std::get<0>(lstm_(embedding_(batch.input)))); }

  torch::Tensor loss(const Batch& batch) override {
    return cross_entropy(forward(batch).to(torch::kFloat32), batch.target);
  }

 private:
  torch::nn::Embedding embedding_;
  torch::nn::LSTM lstm_;
  torch::nn::Linear decoder_;
};

Workload workload_of(const Config& config, std::int64_t batch_size) {
  Workload workload;
  workload.make_model = [config](torch::Device /*device*/) { return std::make_shared<Lstm>(config); };
  workload.make_batch = [config, batch_size]() -> Batch {
    const torch::Tensor tokens = TokenChain(config.symbols).sample(batch_size, config.tokens + 1);
    return {tokens.narrow(1, 0, config.tokens).contiguous(), tokens.narrow(1, 1, config.tokens).contiguous()};
  };
  const auto tokens = static_cast<double>(batch_size * config.tokens);
  const auto width = static_cast<double>(config.width);
  // Four gates, each of a product with the layer's input and one with the state before; then the decoder.
  const double gates = static_cast<double>(config.layers) * 4 * width * (width + width);
  const double decoder = width * static_cast<double>(config.symbols);
  workload.flops = 3 * 2 * tokens * (gates + decoder);  // a product forward, two backward
  workload.items = tokens;
  workload.item = "token";
  return workload;
}

}  // namespace

Workload lstm_workload(std::int64_t batch_size) {
  return workload_of({.symbols = 10'000, .width = 512, .layers = 2, .tokens = 128}, batch_size);
}

Workload lstm_toy_workload(std::int64_t batch_size) {
  return workload_of({.symbols = 50, .width = 32, .layers = 2, .tokens = 16}, batch_size);
}

}  // namespace gpulift
