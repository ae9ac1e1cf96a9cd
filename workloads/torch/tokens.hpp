#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <vector>

namespace gpulift {

/// Synthetic tokens of known entropy, so that the best possible loss of a model that predicts them is known: a Markov
/// chain of order 1 in which every symbol has eight successors, drawn and weighted at random once per seed.
class TokenChain {
 public:
  /// Throws std::invalid_argument for fewer symbols than successors.
  explicit TokenChain(std::int64_t vocabulary, std::uint64_t seed = 1);

  /// The entropy rate in nats per token: what no model's mean cross entropy can go below in the long run.
  double entropy_nats() const { return entropy_nats_; }
  /// How likely `next` follows `symbol`.
  double probability(std::int64_t symbol, std::int64_t next) const;
  /// Tokens [rows, length] (int64) on the host, drawn from torch's default generator. Rows start in the chain's
  /// stationary distribution.
  torch::Tensor sample(std::int64_t rows, std::int64_t length) const;

 private:
  static constexpr std::size_t kSuccessors = 8;
  struct Successor {
    std::int64_t symbol = 0;
    double probability = 0;
  };
  using Successors = std::array<Successor, kSuccessors>;

  std::vector<double> stationary_distribution() const;
  std::int64_t next_of(std::int64_t symbol, double uniform) const;

  std::vector<Successors> successors_;        // of each symbol
  std::vector<double> stationary_cumulated_;  // of the symbols up to and with each
  double entropy_nats_ = 0;
};

}  // namespace gpulift
