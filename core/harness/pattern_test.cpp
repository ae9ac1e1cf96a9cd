#include "pattern.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace gpulift {
namespace {

TEST(Pattern, MatchesAllOfATextOrAPart) {
  const Pattern number(R"(\d+)");
  EXPECT_TRUE(number.matches("12"));
  EXPECT_FALSE(number.matches("a12"));
  EXPECT_TRUE(number.is_part_of("a12"));
}

TEST(Pattern, ReplacesEveryMatchAndKnowsItsGroups) { EXPECT_EQ(Pattern("(a)b").replaced("ab ab", "$1"), "a a"); }

TEST(Pattern, WhatIsNoneSaysWhy) {
  EXPECT_THROW(Pattern("("), std::invalid_argument);
  EXPECT_THROW(Pattern("(", Pattern::Grammar::kExtended), std::invalid_argument);
  EXPECT_FALSE(Pattern(R"(\d)", Pattern::Grammar::kEcmaScript).is_part_of("d"));
}

}  // namespace
}  // namespace gpulift
