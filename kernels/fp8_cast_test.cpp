#include "kernels/fp8_cast.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

constexpr float kLargest = 448;

/// Each 64th row is zeros; sizes differ by a thousand from part to part.
std::vector<__nv_bfloat16> some_matrix(std::int64_t rows, std::int64_t columns) {
  std::vector<__nv_bfloat16> matrix;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const float size = std::exp2(static_cast<float>((row / 3 + column / 50) % 11) - 5.0f);
      const float value = static_cast<float>((row * 31 + column * 17) % 101 - 50) / 50;
      matrix.emplace_back(row % 64 == 63 ? 0.0f : size * value);
    }
  }
  return matrix;
}

TEST(Fp8Cast, ScalesAreCountedAndSidesThatTheyDoNotDivideRefused) {
  EXPECT_EQ(fp8_scales(ScaledPart::kTensor, 3, 8), 2U);
  EXPECT_EQ(fp8_scales(ScaledPart::kRow, 3, 8), 3U);
  EXPECT_EQ(fp8_scales(ScaledPart::kVector, 3, 256), 6U);
  EXPECT_EQ(fp8_scales(ScaledPart::kTile, 256, 640), 16U) << "5 tiles of a row begin at a multiple of 4 scales";
  EXPECT_THROW(fp8_scales(ScaledPart::kTensor, 3, 12), std::invalid_argument);
  EXPECT_THROW(fp8_scales(ScaledPart::kVector, 3, 136), std::invalid_argument);
  EXPECT_THROW(fp8_scales(ScaledPart::kTile, 130, 256), std::invalid_argument);
  EXPECT_THROW(cast_to_fp8(ScaledPart::kRow, nullptr, 0, 8, nullptr, nullptr, nullptr), std::invalid_argument);
}

class Fp8CastOnDevice : public DeviceTest {
 protected:
  /// Casts, and compares with the host, part by part. `rows_each` by `columns_each` share the scale at `place`.
  void expect_right(ScaledPart part, std::int64_t rows, std::int64_t columns, std::int64_t rows_each,
                    std::int64_t columns_each, const std::function<std::int64_t(std::int64_t, std::int64_t)>& place) {
    const auto matrix = some_matrix(rows, columns);
    const auto from = upload(matrix);
    const DeviceBuffer<__nv_fp8_e4m3> to(device(), matrix.size());
    const DeviceBuffer<float> scales(device(), fp8_scales(part, rows, columns));
    check(cudaMemsetAsync(scales.data(), 0xFF, scales.bytes(), stream()));
    cast_to_fp8(part, from.data(), rows, columns, to.data(), scales.data(), stream());
    const auto found = download(to);
    const auto found_scales = download(scales);
    for (std::int64_t row = 0; row < rows; row += rows_each) {
      for (std::int64_t column = 0; column < columns; column += columns_each) {
        float largest = 0;
        const auto each = [&](const std::function<void(std::size_t)>& f) {
          for (std::int64_t r = row; r < std::min(rows, row + rows_each); ++r) {
            for (std::int64_t c = column; c < std::min(columns, column + columns_each); ++c) {
              f(static_cast<std::size_t>(r * columns + c));
            }
          }
        };
        each([&](std::size_t i) { largest = std::max(largest, std::abs(static_cast<float>(matrix[i]))); });
        const float scale = largest > 0 ? largest / kLargest : 1;
        ASSERT_FLOAT_EQ(found_scales[static_cast<std::size_t>(place(row / rows_each, column / columns_each))], scale);
        each([&](std::size_t i) {
          const float expected = static_cast<float>(matrix[i]);
          // A unit in the last place of e4m3 at that size, or at its smallest.
          const float spacing = std::max(std::abs(expected) / 8, scale * 0x1p-9f);
          ASSERT_NEAR(static_cast<float>(found[i]) * scale, expected, 0.51f * spacing) << i;
        });
      }
    }
  }
};

TEST_F(Fp8CastOnDevice, OneScaleForAll) {
  expect_right(ScaledPart::kTensor, 70, 520, 70, 520, [](auto, auto) { return 0; });
}

TEST_F(Fp8CastOnDevice, OneScaleForEachRow) {
  expect_right(ScaledPart::kRow, 65, 8, 1, 8, [](auto row, auto) { return row; });
  expect_right(ScaledPart::kRow, 65, 2056, 1, 2056, [](auto row, auto) { return row; });
}

TEST_F(Fp8CastOnDevice, OneScaleForEach128OfARowByColumnsOfScales) {
  expect_right(ScaledPart::kVector, 67, 384, 1, 128, [](auto row, auto part) { return part * 67 + row; });
}

TEST_F(Fp8CastOnDevice, OneScaleForEachTileByRowsOfScales) {
  expect_right(ScaledPart::kTile, 256, 640, 128, 128, [](auto row, auto part) { return row * 8 + part; });
}

}  // namespace
}  // namespace gpulift
