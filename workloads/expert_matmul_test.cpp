#include "workloads/expert_matmul.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

TEST(DealTokens, EvenlyOrHalfOfThemToAnEighth) {
  EXPECT_EQ(deal_tokens(8, 1024, true), (std::vector<std::int64_t>(8, 128)));
  EXPECT_EQ(deal_tokens(8, 1024, false), (std::vector<std::int64_t>{512, 73, 73, 73, 73, 73, 73, 73}));
  const auto many = deal_tokens(64, 16384, false);
  EXPECT_EQ(many.size(), 64U);
  EXPECT_EQ(std::count(many.begin(), many.end(), 1024), 8);
  EXPECT_EQ(std::count(many.begin(), many.end(), 146), 56);
}

TEST(DealTokens, TooFewTokensAndOtherExpertsAreRefused) {
  EXPECT_THROW(deal_tokens(12, 1024, true), std::invalid_argument);
  EXPECT_THROW(deal_tokens(0, 1024, true), std::invalid_argument);
  EXPECT_THROW(deal_tokens(64, 127, false), std::invalid_argument);
  EXPECT_GT(deal_tokens(64, 128, false).back(), 0);
}

TEST(Experts, CountWhatWasAsked) {
  const Experts experts{16, 32, {5, 1, 2}};
  EXPECT_EQ(experts.all_tokens(), 8);
  EXPECT_EQ(experts.most_tokens(), 5);
  EXPECT_EQ(experts.flops(), 2.0 * 16 * 32 * 8);
}

TEST(Experts, EachSizeIsSearchedOnceAndOnlyTheFullestOfABatch) {
  const Experts experts{16, 32, {5, 1, 5, 2}};
  EXPECT_EQ(searched_shapes(ExpertCalls::kLoop, experts),
            (std::vector<MatmulShape>{{16, 1, 32}, {16, 2, 32}, {16, 5, 32}}));
  EXPECT_EQ(searched_shapes(ExpertCalls::kLoopOnStreams, experts), searched_shapes(ExpertCalls::kLoop, experts));
  EXPECT_EQ(searched_shapes(ExpertCalls::kBatched, experts), (std::vector<MatmulShape>{{16, 5, 32}}));
  EXPECT_TRUE(searched_shapes(ExpertCalls::kGrouped, experts).empty());
}

using ExpertMatmulOnDevice = DeviceTest;

TEST_F(ExpertMatmulOnDevice, EveryWayGivesEachExpertItsProduct) {
  if (!why_matmul_unsupported(MatmulType::kBf16, device().architecture()).empty()) GTEST_SKIP() << "no bf16";
  for (const bool evenly : {true, false}) {
    const Experts experts{256, 128, deal_tokens(16, 320, evenly)};  // more than there are streams
    for (const ExpertCalls calls :
         {ExpertCalls::kLoop, ExpertCalls::kLoopOnStreams, ExpertCalls::kBatched, ExpertCalls::kGrouped}) {
      ExpertMatmul matmul(device(), calls, experts, 3);
      matmul.poison(stream());
      EXPECT_FALSE(matmul.error(stream()) <= 1);
      matmul.enqueue(stream());
      EXPECT_LE(matmul.error(stream()), matmul_tolerance(MatmulType::kBf16, experts.inputs))
          << static_cast<int>(calls) << evenly;
    }
  }
}

TEST_F(ExpertMatmulOnDevice, PlansThatWereFoundCanBeUsedAgainAndOthersAreRefused) {
  if (!why_matmul_unsupported(MatmulType::kBf16, device().architecture()).empty()) GTEST_SKIP() << "no bf16";
  const Experts experts{256, 128, deal_tokens(8, 160, false)};
  ExpertMatmul loop(device(), ExpertCalls::kLoop, experts, 4);
  ExpertMatmul again(device(), ExpertCalls::kLoop, experts, 5);
  const std::vector<MatmulShape> shapes = searched_shapes(ExpertCalls::kLoop, experts);
  for (const MatmulShape& shape : shapes) again.use(loop.search(shape, {.budget_s = 0.02}));
  again.enqueue(stream());
  EXPECT_LE(again.error(stream()), matmul_tolerance(MatmulType::kBf16, experts.inputs));
  MatmulPlan other = loop.search(shapes.front(), {.budget_s = 0.02});
  other.shape.n += 1;
  EXPECT_THROW(again.use(other), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
