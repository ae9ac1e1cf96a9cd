#include "workloads/best_matmul.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "core/cuda/error.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

constexpr double kNoHurry_s = 1e9;

MatmulShape cube(std::int64_t side) { return {side, side, side}; }

TEST(BestMatmul, TheFastestShapesAreThoseOfTheHighestRateNotOfTheLeastTime) {
  const std::array shapes{cube(1), cube(2), cube(4), cube(8)};
  const std::array rates{3.0, 1.0, 4.0, 2.0};
  const auto time_s = [&](const MatmulShape& shape) {
    return shape.flops() / rates.at(static_cast<std::size_t>(std::ranges::find(shapes, shape) - shapes.begin()));
  };
  EXPECT_EQ(fastest_shapes(shapes, kNoHurry_s, 2, time_s), (std::vector{cube(4), cube(1)}));
  EXPECT_EQ(fastest_shapes(shapes, kNoHurry_s, 9, time_s).back(), cube(2)) << "all, where there are not so many";
  EXPECT_EQ(fastest_shapes(shapes, 0, 2, time_s), (std::vector{cube(1)})) << "one, however short the time";
}

TEST(BestMatmul, ShapesThatDoNotFitArePassedOver) {
  const std::array shapes{cube(4), cube(2), cube(1)};
  const auto time_s = [](const MatmulShape& shape) {
    if (shape == cube(4)) throw OutOfMemory("too large");
    return 1.0;
  };
  EXPECT_EQ(fastest_shapes(shapes, 0, 2, time_s), (std::vector{cube(2)}));
  EXPECT_THROW(fastest_shapes(std::span(shapes).first(1), kNoHurry_s, 2, time_s), OutOfMemory);
}

TEST(BestMatmul, ThePlayOffIsWonByTheHighestRateInTheMiddleOfThreeRounds) {
  const std::array shapes{cube(2), cube(2), cube(1)};
  const std::array<std::array<double, 3>, 3> times_s{{{8, 1, 8}, {4, 9, 3}, {3, 3, 1}}};  // in each round
  std::vector<std::size_t> asked;
  const auto time_s = [&](std::size_t i) {
    asked.push_back(i);
    return times_s.at(i).at((asked.size() - 1) / shapes.size());
  };
  EXPECT_EQ(play_off(shapes, time_s), 1);
  EXPECT_EQ(asked, (std::vector<std::size_t>{0, 1, 2, 0, 1, 2, 0, 1, 2})) << "in turn";
}

using BestMatmulOnDevice = DeviceTest;

// More than there are finalists. The others are launches, of 1/60 of the work at most.
TEST_F(BestMatmulOnDevice, TheShapeOfTheHighestRateIsFound) {
  const std::array<MatmulShape, 6> shapes{
      {{1024, 1024, 1024}, {64, 64, 64}, {128, 128, 128}, {64, 128, 64}, {256, 256, 256}, {128, 64, 64}}};
  EXPECT_EQ(find_best_matmul(device(), MatmulType::kFp32, shapes, 19, {.budget_s = 0.4}).shape, shapes.front());
}

TEST_F(BestMatmulOnDevice, ASearchWithoutShapesIsRefused) {
  EXPECT_THROW(find_best_matmul(device(), MatmulType::kFp32, {}, 20, {}), std::invalid_argument);
}

TEST_F(BestMatmulOnDevice, ASearchWhereNothingFitsIsOutOfMemory) {
  const std::array<MatmulShape, 3> shapes{{{1 << 24, 64, 1 << 20}, {1 << 24, 128, 1 << 20}, {1 << 24, 192, 1 << 20}}};
  EXPECT_THROW(find_best_matmul(device(), MatmulType::kFp32, shapes, 21, {}), OutOfMemory);
}

}  // namespace
}  // namespace gpulift
