#include "tokens.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

namespace gpulift {
namespace {

constexpr double kConverged = 1e-13;  // the change of the distribution, in all
constexpr int kMostIterations = 10000;

/// In [0, 1). The library's distributions are not the same everywhere; its generators are.
double uniform(std::mt19937_64& generator) { return static_cast<double>(generator() >> 11) * 0x1p-53; }

std::int64_t index_of(const std::vector<double>& cumulated, double uniform) {
  const auto found = std::upper_bound(cumulated.begin(), cumulated.end(), uniform);
  // Rounding may leave the last sum a little below 1.
  return std::min<std::int64_t>(found - cumulated.begin(), static_cast<std::int64_t>(cumulated.size()) - 1);
}

}  // namespace

TokenChain::TokenChain(std::int64_t vocabulary, std::uint64_t seed) {
  if (vocabulary < static_cast<std::int64_t>(kSuccessors)) {
    throw std::invalid_argument("a chain of " + std::to_string(vocabulary) + " symbols: it needs at least 8");
  }
  std::mt19937_64 generator(seed);
  successors_.resize(static_cast<std::size_t>(vocabulary));
  for (Successors& row : successors_) {
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto drawn = row.begin() + static_cast<std::ptrdiff_t>(i);
      do {
        row[i].symbol = static_cast<std::int64_t>(uniform(generator) * static_cast<double>(vocabulary));
      } while (std::any_of(row.begin(), drawn, [&](const Successor& other) { return other.symbol == row[i].symbol; }));
      row[i].probability = -std::log1p(-uniform(generator));  // exponential: normalised, a flat Dirichlet distribution
      sum += row[i].probability;
    }
    for (Successor& successor : row) successor.probability /= sum;
  }
  const std::vector<double> stationary = stationary_distribution();
  for (std::size_t i = 0; i < stationary.size(); ++i) {
    for (const Successor& successor : successors_[i]) {
      if (successor.probability > 0) {
        entropy_nats_ -= stationary[i] * successor.probability * std::log(successor.probability);
      }
    }
  }
  stationary_cumulated_.resize(stationary.size());
  std::partial_sum(stationary.begin(), stationary.end(), stationary_cumulated_.begin());
}

double TokenChain::probability(std::int64_t symbol, std::int64_t next) const {
  for (const Successor& successor : successors_.at(static_cast<std::size_t>(symbol))) {
    if (successor.symbol == next) return successor.probability;
  }
  return 0;
}

torch::Tensor TokenChain::sample(std::int64_t rows, std::int64_t length) const {
  const torch::Tensor uniforms = torch::rand({rows, length}, torch::kFloat64);
  torch::Tensor tokens = torch::empty({rows, length}, torch::kInt64);
  const auto from = uniforms.accessor<double, 2>();
  auto to = tokens.accessor<std::int64_t, 2>();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < length; ++i) {
      to[row][i] = i == 0 ? index_of(stationary_cumulated_, from[row][i]) : next_of(to[row][i - 1], from[row][i]);
    }
  }
  return tokens;
}

// By power iteration: what a distribution becomes after many steps.
std::vector<double> TokenChain::stationary_distribution() const {
  std::vector<double> now(successors_.size(), 1.0 / static_cast<double>(successors_.size()));
  for (int iteration = 0; iteration < kMostIterations; ++iteration) {
    std::vector<double> after(now.size(), 0.0);
    for (std::size_t i = 0; i < now.size(); ++i) {
      for (const Successor& successor : successors_[i]) {
        after[static_cast<std::size_t>(successor.symbol)] += now[i] * successor.probability;
      }
    }
    double change = 0;
    for (std::size_t i = 0; i < now.size(); ++i) change += std::abs(after[i] - now[i]);
    now.swap(after);
    if (change < kConverged) return now;
  }
  throw std::runtime_error("the distribution of the token chain does not settle");
}

std::int64_t TokenChain::next_of(std::int64_t symbol, double uniform) const {
  const Successors& row = successors_[static_cast<std::size_t>(symbol)];
  for (const Successor& successor : row) {
    uniform -= successor.probability;
    if (uniform < 0) return successor.symbol;
  }
  return row.back().symbol;  // rounding may leave a little
}

}  // namespace gpulift
