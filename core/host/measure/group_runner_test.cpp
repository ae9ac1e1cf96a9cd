#include "group_runner.hpp"

#include <gtest/gtest.h>

namespace gpulift {
namespace {

TEST(Slowest, IsFromTheFirstStartToTheLastEnd) {
  const std::vector<Window> ranks{{.start_s = 10, .host_s = 2, .enqueue_s = 1, .device_s = 1.5, .cpu_s = 2},
                                  {.start_s = 11, .host_s = 4, .enqueue_s = 0.5, .device_s = 3, .cpu_s = 1}};
  const Window window = slowest(ranks);
  EXPECT_EQ(window.start_s, 10);
  EXPECT_EQ(window.host_s, 5);
  EXPECT_EQ(window.enqueue_s, 1);
  EXPECT_EQ(window.device_s, 3);
  EXPECT_EQ(window.cpu_s, 3) << "the sum: all of them use processors";
}

TEST(Slowest, OfOneIsThatOne) {
  const std::vector<Window> ranks{{.start_s = 3, .host_s = 2, .enqueue_s = 1}};
  const Window window = slowest(ranks);
  EXPECT_EQ(window.host_s, 2);
  EXPECT_FALSE(window.device_s);
  EXPECT_FALSE(window.cpu_s);
}

TEST(Slowest, ProcessorTimeThatOneRankDoesNotKnowIsNotKnown) {
  const std::vector<Window> ranks{{.host_s = 2, .cpu_s = 1}, {.host_s = 2}};
  EXPECT_FALSE(slowest(ranks).cpu_s);
}

TEST(Slowest, ThePreconditionIsTheWorst) {
  const std::vector<Window> ranks{{.host_s = 1, .precondition = 0.5}, {.host_s = 1, .precondition = 0.1}};
  EXPECT_EQ(slowest(ranks).precondition, 0.5);
}

TEST(Slowest, ClocksAreKnownAsWellAsThoseOfTheTwoWorstRanks) {
  const std::vector<Window> ranks{{.host_s = 1},
                                  {.host_s = 1, .clock_error_s = 2e-6},
                                  {.host_s = 1, .clock_error_s = 1e-6},
                                  {.host_s = 1, .clock_error_s = 3e-6}};
  EXPECT_DOUBLE_EQ(slowest(ranks).clock_error_s.value(), 5e-6) << "one has the first start, one the last end";
  EXPECT_EQ(slowest(std::span(ranks).first(2)).clock_error_s, 2e-6);
  EXPECT_FALSE(slowest(std::span(ranks).first(1)).clock_error_s) << "one host has one clock";
}

TEST(Slowest, EmptyLaunchesAreThoseOfTheSlowestHost) {
  const std::vector<Window> ranks{{.host_s = 1, .empty_launch_s = 2e-6}, {.host_s = 1, .empty_launch_s = 3e-6}};
  EXPECT_EQ(slowest(ranks).empty_launch_s, 3e-6);
  const std::vector<Window> none{{.host_s = 1}, {.host_s = 1}};
  EXPECT_FALSE(slowest(none).empty_launch_s);
}

}  // namespace
}  // namespace gpulift
