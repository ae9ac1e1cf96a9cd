#include "tokens.hpp"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>

namespace gpulift {
namespace {

double mean_surprise_nats(const TokenChain& chain, const torch::Tensor& tokens) {
  const auto symbols = tokens.accessor<std::int64_t, 2>();
  double sum = 0;
  for (std::int64_t row = 0; row < tokens.size(0); ++row) {
    for (std::int64_t i = 1; i < tokens.size(1); ++i) {
      sum -= std::log(chain.probability(symbols[row][i - 1], symbols[row][i]));
    }
  }
  return sum / static_cast<double>(tokens.size(0) * (tokens.size(1) - 1));
}

TEST(TokenChain, SurprisesTheTrueModelByItsEntropyRate) {
  for (const std::int64_t vocabulary : {64, 50304}) {
    const TokenChain chain(vocabulary);
    torch::manual_seed(7);
    const double measured = mean_surprise_nats(chain, chain.sample(64, 1025));
    EXPECT_NEAR(measured, chain.entropy_nats(), 0.02 * chain.entropy_nats()) << vocabulary;
    EXPECT_GT(chain.entropy_nats(), 1);
    EXPECT_LT(chain.entropy_nats(), std::log(8.0));  // eight successors at most
  }
}

TEST(TokenChain, DrawsTheSameTokensFromTheSameSeed) {
  const TokenChain chain(64);
  torch::manual_seed(3);
  const torch::Tensor first = chain.sample(4, 32);
  EXPECT_FALSE(torch::equal(chain.sample(4, 32), first));
  torch::manual_seed(3);
  EXPECT_TRUE(torch::equal(TokenChain(64).sample(4, 32), first));
  torch::manual_seed(3);
  EXPECT_FALSE(torch::equal(TokenChain(64, 2).sample(4, 32), first));
}

TEST(TokenChain, HasEightSuccessorsOfEverySymbol) {
  const TokenChain chain(16);
  for (std::int64_t symbol = 0; symbol < 16; ++symbol) {
    int successors = 0;
    double sum = 0;
    for (std::int64_t next = 0; next < 16; ++next) {
      successors += chain.probability(symbol, next) > 0 ? 1 : 0;
      sum += chain.probability(symbol, next);
    }
    EXPECT_EQ(successors, 8);
    EXPECT_NEAR(sum, 1, 1e-12);
  }
  EXPECT_THROW(TokenChain(7), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
