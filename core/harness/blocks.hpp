#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace gpulift {

/// The order of the windows of one block: indices of arms, each arm twice.
using Block = std::vector<int>;

/// Endless blocks for `arms` arms (at least 1). A block is a row of a balanced Latin square (Williams design: every arm
/// follows every other equally often) and then the same row backwards, so that linear drift within a block cancels
/// exactly: for two arms A B B A and B A A B. Rows come in an order that the seed decides, all of them before any
/// comes again.
class BlockOrder {
 public:
  BlockOrder(int arms, std::uint64_t seed);
  Block next();

 private:
  std::vector<std::vector<int>> rows_;
  std::mt19937_64 random_;
  std::size_t used_ = 0;
};

/// The rows of a Williams design for `arms` treatments: `arms` rows when even, twice as many when odd.
std::vector<std::vector<int>> williams_rows(int arms);

}  // namespace gpulift
