#include "workloads/batched_product.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "kernels/device_test.hpp"
#include "kernels/pattern.hpp"
#include "workloads/lt_operation.hpp"

namespace gpulift {
namespace {

TEST(BatchedProduct, RefusesOtherTypes) {
  EXPECT_THROW(BatchedProduct(ElementType::kFp32, {8, 8, 8}), std::invalid_argument);
}

class BatchedProductOnDevice : public DeviceTest {
 protected:
  static std::vector<double> integers(std::int64_t count, std::uint64_t seed) {
    std::vector<double> values;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
      values.push_back(static_cast<double>(random_bits(seed, i) % 9) - 4);
    }
    return values;
  }
};

TEST_F(BatchedProductOnDevice, EveryTransposeOfEachMatrixIsRight) {
  const DeviceBuffer<std::byte> workspace(device(), kMatmulWorkspaceBytes);
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const BatchedShape shape{24, 16, 40, transpose_a, transpose_b, 3};
      const std::vector<double> a = integers(shape.m * shape.k * shape.count, 1);
      const std::vector<double> b = integers(shape.k * shape.n * shape.count, 2);
      const DeviceBuffer<double> left = upload(a);
      const DeviceBuffer<double> right = upload(b);
      const DeviceBuffer<double> product(device(), static_cast<std::size_t>(shape.m * shape.n * shape.count));
      BatchedProduct(ElementType::kFp64, shape)
          .enqueue(left.data(), right.data(), product.data(), workspace.data(), stream());
      const std::vector<double> found = download(product);
      for (std::int64_t at = 0; at < shape.m * shape.n * shape.count; ++at) {
        const std::int64_t row = at % shape.m;
        const std::int64_t column = at / shape.m % shape.n;
        const std::int64_t matrix = at / shape.m / shape.n;
        double sum = 0;
        for (std::int64_t i = 0; i < shape.k; ++i) {
          const std::int64_t in_a = transpose_a ? row * shape.k + i : i * shape.m + row;
          const std::int64_t in_b = transpose_b ? i * shape.n + column : column * shape.k + i;
          sum += a[static_cast<std::size_t>(matrix * shape.m * shape.k + in_a)] *
                 b[static_cast<std::size_t>(matrix * shape.k * shape.n + in_b)];
        }
        ASSERT_EQ(found[static_cast<std::size_t>(at)], sum) << transpose_a << transpose_b << " " << at;
      }
    }
  }
}

}  // namespace
}  // namespace gpulift
