#include "workloads/host/collate.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace gpulift {
namespace {

/// 1 thread; one producer and one consumer; an uneven number; more consumers than batches of one producer.
class CollateLoadTest : public testing::TestWithParam<int> {};

TEST_P(CollateLoadTest, EveryByteArrives) {
  CollateLoad load(CollateMix::kCollate, GetParam(), 1);
  load.poison();
  load.run();
  EXPECT_EQ(load.wrong_bytes(), 0U);
}

TEST_P(CollateLoadTest, FindsThatNothingRan) {
  CollateLoad load(CollateMix::kMetadata, GetParam(), 1);
  load.poison();
  EXPECT_GT(load.wrong_bytes(), load.bytes() / 2) << "all batches count as one of average size";
}

TEST_P(CollateLoadTest, MayRunManyTimesBackToBack) {
  CollateLoad load(CollateMix::kTokens, GetParam(), 1);
  for (int i = 0; i < 20; ++i) load.run();
  EXPECT_EQ(load.wrong_bytes(), 0U);
}

TEST_P(CollateLoadTest, EndsWithoutHavingRun) { const CollateLoad load(CollateMix::kMetadata, GetParam(), 1); }

INSTANTIATE_TEST_SUITE_P(Threads, CollateLoadTest, testing::Values(1, 2, 5, 8));

TEST(CollateLoad, IsTheSameForTheSameSeed) {
  EXPECT_EQ(CollateLoad(CollateMix::kCollate, 1, 7).bytes(), CollateLoad(CollateMix::kCollate, 1, 7).bytes());
  EXPECT_NE(CollateLoad(CollateMix::kCollate, 1, 7).bytes(), CollateLoad(CollateMix::kCollate, 1, 8).bytes());
}

TEST(CollateLoad, BlocksHaveTheSizesOfTheirMix) {
  const auto mean_bytes = [](CollateMix mix) {
    const CollateLoad load(mix, 1, 1);
    return static_cast<double>(load.bytes()) / static_cast<double>(load.blocks());
  };
  EXPECT_EQ(mean_bytes(CollateMix::kImages), 3 * 224 * 224 * 4);
  EXPECT_NEAR(mean_bytes(CollateMix::kTokens), 6144, 200) << "uniform from 4096 to 8192";
  EXPECT_NEAR(mean_bytes(CollateMix::kMetadata), 346, 20) << "log-uniform from 64 to 1024: 960 / ln 16";
}

TEST(CollateLoad, ASampleIsAnImageTokensAndEightSmallBlocks) {
  const CollateLoad images(CollateMix::kImages, 1, 1);
  const CollateLoad samples(CollateMix::kCollate, 1, 1);
  EXPECT_EQ(samples.blocks(), 10 * images.blocks());
  EXPECT_GT(samples.bytes(), images.bytes());
}

TEST(CollateLoad, WorkGrowsWithTheProducers) {
  EXPECT_EQ(CollateLoad(CollateMix::kImages, 8, 1).blocks(), 4 * CollateLoad(CollateMix::kImages, 1, 1).blocks());
}

TEST(CollateLoad, NeedsAThread) { EXPECT_THROW(CollateLoad(CollateMix::kImages, 0, 1), std::invalid_argument); }

TEST(CollateMix, AnUnknownNameIsRefused) {
  EXPECT_EQ(collate_mix("tokens"), CollateMix::kTokens);
  EXPECT_THROW(collate_mix("videos"), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
