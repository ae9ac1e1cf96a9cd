#include "blocks.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

namespace gpulift {
namespace {

using testing::Each;
using testing::ElementsAre;

class WilliamsRows : public testing::TestWithParam<int> {};

TEST_P(WilliamsRows, EachRowHasEveryArmOnce) {
  std::vector<int> all(static_cast<std::size_t>(GetParam()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  for (const auto& row : williams_rows(GetParam())) EXPECT_THAT(row, testing::UnorderedElementsAreArray(all));
}

TEST_P(WilliamsRows, EveryArmComesEquallyOftenAtEveryPlace) {
  const auto rows = williams_rows(GetParam());
  std::map<std::pair<std::size_t, int>, std::size_t> at_place;
  for (const auto& row : rows) {
    for (std::size_t place = 0; place < row.size(); ++place) ++at_place[{place, row[place]}];
  }
  EXPECT_EQ(at_place.size(), static_cast<std::size_t>(GetParam() * GetParam()));
  for (const auto& [key, count] : at_place) EXPECT_EQ(count, rows.size() / static_cast<std::size_t>(GetParam()));
}

TEST_P(WilliamsRows, EveryArmFollowsEveryOtherEquallyOften) {
  const auto rows = williams_rows(GetParam());
  std::map<std::pair<int, int>, int> follows;
  for (const auto& row : rows) {
    for (std::size_t i = 1; i < row.size(); ++i) ++follows[{row[i - 1], row[i]}];
  }
  const int pairs = GetParam() * (GetParam() - 1);
  EXPECT_EQ(follows.size(), static_cast<std::size_t>(pairs));
  const int expected = static_cast<int>(rows.size()) * (GetParam() - 1) / std::max(1, pairs);
  for (const auto& [pair, count] : follows) EXPECT_EQ(count, expected);
}

INSTANTIATE_TEST_SUITE_P(Arms, WilliamsRows, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 11));

TEST(WilliamsRowsOfNone, AreRefused) { EXPECT_THROW(williams_rows(0), std::invalid_argument); }

TEST(BlockOrder, MakesPalindromesOfTwoArms) {
  BlockOrder order(2, 1);
  std::set<Block> seen;
  for (int i = 0; i < 2; ++i) seen.insert(order.next());
  EXPECT_THAT(seen, ElementsAre(Block{0, 1, 1, 0}, Block{1, 0, 0, 1}));
}

TEST(BlockOrder, EveryBlockReadsTheSameBackwards) {
  BlockOrder order(5, 7);
  for (int i = 0; i < 30; ++i) {
    const Block block = order.next();
    EXPECT_EQ(block.size(), 10U);
    EXPECT_TRUE(std::equal(block.begin(), block.end(), block.rbegin()));
  }
}

TEST(BlockOrder, UsesEveryRowBeforeAnyAgain) {
  BlockOrder order(3, 3);
  for (int round = 0; round < 4; ++round) {
    std::set<Block> seen;
    for (int i = 0; i < 6; ++i) seen.insert(order.next());
    EXPECT_EQ(seen.size(), 6U) << "round " << round;
  }
}

std::vector<Block> blocks_of(int arms, std::uint64_t seed, int count) {
  BlockOrder order(arms, seed);
  std::vector<Block> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(order.next());
  return blocks;
}

TEST(BlockOrder, IsDecidedByItsSeed) {
  EXPECT_EQ(blocks_of(4, 5, 12), blocks_of(4, 5, 12));
  EXPECT_NE(blocks_of(4, 5, 12), blocks_of(4, 6, 12));
}

TEST(BlockOrder, OfOneArmRepeatsIt) { EXPECT_THAT(BlockOrder(1, 1).next(), ElementsAre(0, 0)); }

}  // namespace
}  // namespace gpulift
