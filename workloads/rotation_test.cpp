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

TEST(Rotation, RefusesEmptySlots) { EXPECT_THROW(Rotation(0, 100), std::invalid_argument); }

}  // namespace
}  // namespace gpulift
