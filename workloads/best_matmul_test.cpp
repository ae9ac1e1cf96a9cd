#include "workloads/best_matmul.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/cuda/error.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

using BestMatmulOnDevice = DeviceTest;

TEST_F(BestMatmulOnDevice, TheBestOfSomeShapesIsOneOfThem) {
  const std::array<MatmulShape, 4> shapes{{{64, 64, 64}, {128, 128, 128}, {1024, 1024, 1024}, {256, 256, 256}}};
  const MatmulPlan plan = find_best_matmul(device(), MatmulType::kFp32, shapes, 19, {.budget_s = 0.4});
  EXPECT_NE(std::find(shapes.begin(), shapes.end(), plan.shape), shapes.end());
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
