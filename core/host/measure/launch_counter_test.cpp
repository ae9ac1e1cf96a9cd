#include "launch_counter.hpp"

#include <gtest/gtest.h>

namespace gpulift {
namespace {

TEST(LaunchCounterWithoutItsLibrary, CountsNothingAndRunsNothing) {
  bool ran = false;
  EXPECT_EQ(launches_during("libgpulift_of_no_build.so", [&] { ran = true; }), std::nullopt);
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace gpulift
