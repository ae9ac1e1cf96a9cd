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
  EXPECT_GT(fp8_scales(ScaledPart::kTensor, 3, 8), 1U);
  EXPECT_EQ(fp8_scales(ScaledPart::kRow, 3, 8), 3U + 3 + 8) << "and the largest number of each row and column";
  EXPECT_EQ(fp8_scales(ScaledPart::kVector, 3, 256), 6U);
  EXPECT_EQ(fp8_scales(ScaledPart::kTile, 256, 640), 16U) << "5 tiles of a row begin at a multiple of 4 scales";
  EXPECT_THROW(fp8_scales(ScaledPart::kTensor, 3, 12), std::invalid_argument);
  EXPECT_THROW(fp8_scales(ScaledPart::kVector, 3, 136), std::invalid_argument);
  EXPECT_THROW(fp8_scales(ScaledPart::kTile, 130, 256), std::invalid_argument);
  EXPECT_THROW(cast_to_fp8(ScaledPart::kRow, nullptr, 0, 8, nullptr, nullptr, nullptr), std::invalid_argument);
}

TEST(Fp8Cast, BothWaysNeedWholeTilesAndScalesOfTheTensorOrOfRows) {
  const auto cast = [](ScaledPart part, std::int64_t rows, std::int64_t columns) {
    cast_to_fp8_both_ways(part, nullptr, rows, columns, {}, {}, nullptr);
  };
  EXPECT_THROW(cast(ScaledPart::kTile, 128, 128), std::invalid_argument);
  EXPECT_THROW(cast(ScaledPart::kVector, 128, 128), std::invalid_argument);
  EXPECT_THROW(cast(ScaledPart::kTensor, 128, 192), std::invalid_argument);
  EXPECT_THROW(cast(ScaledPart::kRow, 64, 128), std::invalid_argument);
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
    expect_restored(part, {to.data(), scales.data()}, found, found_scales, rows, columns, rows_each, columns_each,
                    place);
  }

  /// Each number times the scale of its part, and the same by columns.
  void expect_restored(ScaledPart part, const Fp8Copy& copy, const std::vector<__nv_fp8_e4m3>& numbers,
                       const std::vector<float>& scales, std::int64_t rows, std::int64_t columns,
                       std::int64_t rows_each, std::int64_t columns_each,
                       const std::function<std::int64_t(std::int64_t, std::int64_t)>& place) {
    const DeviceBuffer<float> restored(device(), numbers.size());
    for (const bool transposed : {false, true}) {
      check(cudaMemsetAsync(restored.data(), 0xFF, restored.bytes(), stream()));
      restore_from_fp8(part, copy, rows, columns, transposed, restored.data(), stream());
      const auto said = download(restored);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
          const auto at = static_cast<std::size_t>(transposed ? column * rows + row : row * columns + column);
          const auto scale = static_cast<std::size_t>(place(row / rows_each, column / columns_each));
          const float number = static_cast<float>(numbers[static_cast<std::size_t>(row * columns + column)]);
          ASSERT_EQ(said[at], number * scales[scale]) << row << ", " << column;
        }
      }
    }
  }

  struct Copy {
    std::vector<__nv_fp8_storage_t> numbers;
    std::vector<float> scales;
    bool operator==(const Copy&) const = default;
  };

  /// The scales alone, without what they were found from.
  Copy downloaded(ScaledPart part, const DeviceBuffer<__nv_fp8_e4m3>& numbers, const DeviceBuffer<float>& scales,
                  std::int64_t rows) {
    Copy copy;
    for (const __nv_fp8_e4m3 number : download(numbers)) copy.numbers.push_back(number.__x);
    copy.scales = download(scales);
    copy.scales.resize(part == ScaledPart::kTensor ? 1 : static_cast<std::size_t>(rows));
    return copy;
  }

  Copy cast_alone(ScaledPart part, const std::vector<__nv_bfloat16>& matrix, std::int64_t rows, std::int64_t columns) {
    const auto from = upload(matrix);
    const DeviceBuffer<__nv_fp8_e4m3> numbers(device(), matrix.size());
    const DeviceBuffer<float> scales(device(), fp8_scales(part, rows, columns));
    cast_to_fp8(part, from.data(), rows, columns, numbers.data(), scales.data(), stream());
    return downloaded(part, numbers, scales, rows);
  }

  /// The copies are those of the matrix and of its transpose, bit for bit.
  void expect_both_ways(ScaledPart part, std::int64_t rows, std::int64_t columns) {
    const auto matrix = some_matrix(rows, columns);
    std::vector<__nv_bfloat16> transpose;
    for (std::int64_t column = 0; column < columns; ++column) {
      for (std::int64_t row = 0; row < rows; ++row) {
        transpose.push_back(matrix[static_cast<std::size_t>(row * columns + column)]);
      }
    }
    const auto from = upload(matrix);
    const DeviceBuffer<__nv_fp8_e4m3> by_rows(device(), matrix.size());
    const DeviceBuffer<__nv_fp8_e4m3> by_columns(device(), matrix.size());
    const DeviceBuffer<float> scales_of_rows(device(), fp8_scales(part, rows, columns));
    const DeviceBuffer<float> scales_of_columns(device(), fp8_scales(part, columns, rows));
    check(cudaMemsetAsync(scales_of_rows.data(), 0xFF, scales_of_rows.bytes(), stream()));
    check(cudaMemsetAsync(scales_of_columns.data(), 0xFF, scales_of_columns.bytes(), stream()));
    cast_to_fp8_both_ways(part, from.data(), rows, columns, {by_rows.data(), scales_of_rows.data()},
                          {by_columns.data(), scales_of_columns.data()}, stream());
    EXPECT_EQ(downloaded(part, by_rows, scales_of_rows, rows), cast_alone(part, matrix, rows, columns));
    EXPECT_EQ(downloaded(part, by_columns, scales_of_columns, columns), cast_alone(part, transpose, columns, rows));
  }
};

TEST_F(Fp8CastOnDevice, BothWaysOneScaleForAll) {
  expect_both_ways(ScaledPart::kTensor, 128, 128);
  expect_both_ways(ScaledPart::kTensor, 384, 256);
}

TEST_F(Fp8CastOnDevice, BothWaysEachCopyByScalesOfItsOwnRows) {
  expect_both_ways(ScaledPart::kRow, 128, 128);
  expect_both_ways(ScaledPart::kRow, 384, 256);
}

TEST_F(Fp8CastOnDevice, OneScaleForAll) {
  expect_right(ScaledPart::kTensor, 70, 520, 70, 520, [](auto, auto) { return 0; });
  expect_right(ScaledPart::kTensor, 1, 8, 1, 8, [](auto, auto) { return 0; });
}

TEST_F(Fp8CastOnDevice, OneScaleForEachRow) {
  expect_right(ScaledPart::kRow, 65, 8, 1, 8, [](auto row, auto) { return row; });
  expect_right(ScaledPart::kRow, 65, 2056, 1, 2056, [](auto row, auto) { return row; });
  expect_right(ScaledPart::kRow, 3, 8200, 1, 8200, [](auto row, auto) { return row; });    // more threads
  expect_right(ScaledPart::kRow, 3, 33000, 1, 33000, [](auto row, auto) { return row; });  // longer than they hold
}

TEST_F(Fp8CastOnDevice, OneScaleForEach128OfARowByColumnsOfScales) {
  expect_right(ScaledPart::kVector, 67, 384, 1, 128, [](auto row, auto part) { return part * 67 + row; });
}

TEST_F(Fp8CastOnDevice, OneScaleForEachTileByRowsOfScales) {
  expect_right(ScaledPart::kTile, 256, 640, 128, 128, [](auto row, auto part) { return row * 8 + part; });
}

}  // namespace
}  // namespace gpulift
