#include "workloads/rotation.hpp"

#include <gtest/gtest.h>

namespace gpulift {
namespace {

TEST(Rotation, DealsOutEverySlotAndStartsAgain) {
  Rotation slots(100, 350);
  EXPECT_EQ(slots.slots(), 3);
  EXPECT_EQ(slots.bytes(), 300);
  for (const std::size_t expected : {0u, 100u, 200u, 0u, 100u}) {
    EXPECT_EQ(slots.next_offset(), expected);
    EXPECT_EQ(slots.offset(), expected);
  }
}

TEST(Rotation, HasOneSlotWhenItIsLargerThanTheFootprint) {
  Rotation slots(1000, 350);
  EXPECT_EQ(slots.slots(), 1);
  EXPECT_EQ(slots.bytes(), 1000);
  EXPECT_EQ(slots.next_offset(), 0);
  EXPECT_EQ(slots.next_offset(), 0);
}

TEST(Footprint, IsLargerThanTheCachesHoweverLargeTheyAre) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  EXPECT_EQ(footprint_beyond(32 * kMiB), 256 * kMiB);
  EXPECT_EQ(footprint_beyond(300 * kMiB), 600 * kMiB);
  EXPECT_GT(Rotation(256 * kMiB, footprint_beyond(300 * kMiB)).bytes(), 300 * kMiB);
  EXPECT_EQ(footprint_beyond({}), 1024 * kMiB);
}

TEST(Rotation, RefusesEmptySlots) { EXPECT_THROW(Rotation(0, 100), std::invalid_argument); }

}  // namespace
}  // namespace gpulift
