#include "kernels/block_scaled_cast.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <stdexcept>
#include <vector>

#include "kernels/block_scales.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

using enum BlockFormat;

TEST(BlockScales, AScaleOfMxfp8IsTheLeastPowerOfTwoThatKeepsTheLargestNumber) {
  for (const float largest : {448.0f, 448.5f, 449.0f, 895.0f, 896.0f, 1.0f, 3.5f, 3.51f, 1e-20f, 3e38f}) {
    int exponent = -127;
    while (std::ldexp(448.0, exponent) < static_cast<double>(largest)) ++exponent;
    EXPECT_EQ(mxfp8_scale(largest), exponent + 127) << largest;
  }
  EXPECT_EQ(mxfp8_scale(0), 0) << "of zeros";
}

TEST(BlockScales, FactorsOfMxfp8AreThePowersOfTwoThatUndoTheScale) {
  for (int scale = 0; scale < 255; ++scale) {
    EXPECT_EQ(mxfp8_factor(static_cast<std::uint8_t>(scale)), static_cast<float>(std::ldexp(1.0, 127 - scale)))
        << scale;
    EXPECT_EQ(mxfp8_value(static_cast<std::uint8_t>(scale)), static_cast<float>(std::ldexp(1.0, scale - 127))) << scale;
  }
  EXPECT_TRUE(std::isnan(mxfp8_value(255)));
}

TEST(BlockScales, TheLargestBlockOfAnNvfp4MatrixHasTheLargestScaleAndItsLargestNumberIs6) {
  for (const float largest : {1.0f, 5.75f, 3e4f, 1e-6f}) {
    const float tensor_scale = nvfp4_tensor_scale(largest);
    const std::uint8_t scale = nvfp4_scale(largest, tensor_scale);
    EXPECT_EQ(e4m3_value(scale), kLargestE4m3) << largest;
    EXPECT_NEAR(largest * nvfp4_factor(scale, tensor_scale), 6, 1e-5) << largest;
    const std::uint8_t half = nvfp4_scale(largest / 2, tensor_scale);
    EXPECT_EQ(e4m3_value(half), kLargestE4m3 / 2) << largest;
  }
}

TEST(BlockScales, ZerosAndBlocksTooSmallForAScaleAreZerosInNvfp4) {
  EXPECT_EQ(nvfp4_tensor_scale(0), 1);
  EXPECT_EQ(nvfp4_scale(0, 1), 0);
  EXPECT_EQ(nvfp4_factor(0, 1), 0);
  const float tensor_scale = nvfp4_tensor_scale(1);
  EXPECT_EQ(nvfp4_scale(0x1p-20f, tensor_scale), 0) << "below half the least E4M3 of 1 / 448";
  EXPECT_GT(nvfp4_scale(0x1p-17f, tensor_scale), 0);
}

TEST(BlockScales, NumbersAreRoundedToTheNearestE2m1AndATieToTheEvenOne) {
  constexpr std::array<float, 8> kValues{0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int step = 0; step <= 7 * 64; ++step) {
    const float number = static_cast<float>(step) / 64;
    std::size_t nearest = 0;
    for (std::size_t i = 1; i < kValues.size(); ++i) {
      const float gain = std::abs(number - kValues[nearest]) - std::abs(number - kValues[i]);
      if (gain > 0 || (gain == 0 && i % 2 == 0)) nearest = i;
    }
    const std::uint8_t pair = e2m1_pair(number, -number);
    EXPECT_EQ(pair & 0xF, nearest) << number;
    EXPECT_EQ(pair >> 4, nearest | 8) << number << " with its sign, in the upper half";
    EXPECT_EQ(e2m1_value(pair), kValues[nearest]) << number;
    EXPECT_EQ(e2m1_value(pair >> 4), -kValues[nearest]) << number;
  }
  EXPECT_EQ(e2m1_value(e2m1_pair(1e30f, 0)), 6) << "what is beyond the largest becomes it";
}

TEST(BlockScales, LieInTilesOf128RowsBy4Blocks) {
  // Of 256 rows of 8 blocks, as torchao's to_blocked() orders them.
  EXPECT_EQ(block_scale_place(0, 3, 8), 3);
  EXPECT_EQ(block_scale_place(32, 0, 8), 4) << "beside the row 32 above it";
  EXPECT_EQ(block_scale_place(1, 0, 8), 16);
  EXPECT_EQ(block_scale_place(37, 6, 8), 598);
  EXPECT_EQ(block_scale_place(127, 3, 8), 511);
  EXPECT_EQ(block_scale_place(0, 4, 8), 512) << "the next tile of the row of tiles";
  EXPECT_EQ(block_scale_place(128, 0, 8), 1024);
  EXPECT_EQ(block_scale_place(200, 5, 8), 1673);
  std::set<std::int64_t> places;
  for (std::int64_t row = 0; row < 256; ++row) {
    for (std::int64_t block = 0; block < 8; ++block) places.insert(block_scale_place(row, block, 8));
  }
  EXPECT_EQ(places.size(), 256U * 8);
  EXPECT_EQ(*places.rbegin(), 256 * 8 - 1);
}

TEST(BlockScaledCast, BytesAreCountedAndSidesThatDoNotFillTilesRefused) {
  EXPECT_EQ(block_scaled_bytes(kMxfp8, 1024), 1024);
  EXPECT_EQ(block_scaled_bytes(kNvfp4, 1024), 512);
  EXPECT_EQ(block_scales(kMxfp8, 128, 256), 1024U);
  EXPECT_EQ(block_scales(kNvfp4, 128, 256), 2048U);
  EXPECT_EQ(tensor_scales(kMxfp8), 0U);
  EXPECT_GT(tensor_scales(kNvfp4), 1U);
  EXPECT_THROW(block_scales(kMxfp8, 64, 256), std::invalid_argument);
  EXPECT_THROW(block_scales(kNvfp4, 128, 192), std::invalid_argument);
  EXPECT_THROW(cast_to_blocks(kMxfp8, nullptr, 128, 0, {}, nullptr), std::invalid_argument);
}

/// Sizes differ by a thousand from part to part; a block is zeros, another too small for a scale of NVFP4.
std::vector<__nv_bfloat16> some_matrix(std::int64_t rows, std::int64_t columns) {
  std::vector<__nv_bfloat16> matrix;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const float size = std::exp2(static_cast<float>((row / 3 + column / 24) % 11) - 5.0f);
      const float value = static_cast<float>((row * 31 + column * 17) % 101 - 50) / 50;
      const float share = row == 5 && column / 32 == 2 ? 0.0f : row == 7 && column / 32 == 1 ? 0x1p-30f : 1.0f;
      matrix.emplace_back(size * value * share);
    }
  }
  return matrix;
}

struct Cast {
  std::vector<std::uint8_t> numbers;
  std::vector<std::uint8_t> scales;
  float tensor_scale = 1;
};

float largest_of(const __nv_bfloat16* numbers, std::int64_t count) {
  float largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(static_cast<float>(numbers[i])));
  return largest;
}

/// On the host, number by number.
Cast expected_cast(BlockFormat format, const std::vector<__nv_bfloat16>& matrix, std::int64_t rows,
                   std::int64_t columns) {
  const std::int64_t block = format == kMxfp8 ? kMxfp8Block : kNvfp4Block;
  Cast cast;
  cast.numbers.resize(static_cast<std::size_t>(block_scaled_bytes(format, rows * columns)));
  cast.scales.resize(block_scales(format, rows, columns));
  if (format == kNvfp4) cast.tensor_scale = nvfp4_tensor_scale(largest_of(matrix.data(), rows * columns));
  for (std::int64_t first = 0; first < rows * columns; first += block) {
    const __nv_bfloat16* const numbers = matrix.data() + first;
    const float largest = largest_of(numbers, block);
    const std::uint8_t scale = format == kMxfp8 ? mxfp8_scale(largest) : nvfp4_scale(largest, cast.tensor_scale);
    const std::int64_t place = block_scale_place(first / columns, first % columns / block, columns / block);
    cast.scales[static_cast<std::size_t>(place)] = scale;
    const float factor = format == kMxfp8 ? mxfp8_factor(scale) : nvfp4_factor(scale, cast.tensor_scale);
    for (std::int64_t i = 0; i < block; ++i) {
      const float number = static_cast<float>(numbers[i]) * factor;
      const auto at = static_cast<std::size_t>(block_scaled_bytes(format, first + i));
      if (format == kMxfp8) {
        cast.numbers[at] = __nv_fp8_e4m3(number).__x;
      } else if (i % 2 == 0) {
        cast.numbers[at] = e2m1_pair(number, static_cast<float>(numbers[i + 1]) * factor);
      }
    }
  }
  return cast;
}

class BlockScaledCastOnDevice : public DeviceTest {
 protected:
  void expect_right(BlockFormat format, std::int64_t rows, std::int64_t columns) {
    const auto matrix = some_matrix(rows, columns);
    const Cast expected = expected_cast(format, matrix, rows, columns);
    const auto from = upload(matrix);
    const DeviceBuffer<std::uint8_t> numbers(device(), expected.numbers.size());
    const DeviceBuffer<std::uint8_t> scales(device(), expected.scales.size());
    const DeviceBuffer<float> tensor_scale(device(), std::max<std::size_t>(1, tensor_scales(format)));
    const DeviceBuffer<float> restored(device(), matrix.size());
    for (void* data : {static_cast<void*>(numbers.data()), static_cast<void*>(scales.data())}) {
      check(cudaMemsetAsync(data, 0xFF, data == numbers.data() ? numbers.bytes() : scales.bytes(), stream()));
    }
    check(cudaMemsetAsync(tensor_scale.data(), 0xFF, tensor_scale.bytes(), stream()));
    const BlockScaled to{numbers.data(), scales.data(), tensor_scale.data()};
    cast_to_blocks(format, from.data(), rows, columns, to, stream());
    restore_from_blocks(format, to, rows, columns, restored.data(), stream());
    EXPECT_EQ(download(scales), expected.scales);
    EXPECT_EQ(download(numbers), expected.numbers);
    if (format == kNvfp4) {
      EXPECT_EQ(download(tensor_scale).front(), expected.tensor_scale);
    }
    const std::vector<float> said = download(restored);
    const std::int64_t block = format == kMxfp8 ? kMxfp8Block : kNvfp4Block;
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      const std::int64_t first = static_cast<std::int64_t>(i) / block * block;
      // Half a step of the format at the block's largest number; of NVFP4's scale half a step more, or it is zero.
      const float share = format == kMxfp8 ? 1.0f / 16 : 1.0f / 6 * 1.07f;
      const float least = format == kMxfp8 ? 0 : expected.tensor_scale * 0x1p-10f * kLargestE2m1;
      const float largest = largest_of(matrix.data() + first, block);
      ASSERT_NEAR(said[i], static_cast<float>(matrix[i]), std::max(share * largest, least)) << i;
    }
  }
};

TEST_F(BlockScaledCastOnDevice, Mxfp8IsWhatTheHostMakesOfEachNumber) {
  expect_right(kMxfp8, 128, 128);
  expect_right(kMxfp8, 256, 640);
}

TEST_F(BlockScaledCastOnDevice, Nvfp4IsWhatTheHostMakesOfEachNumber) {
  expect_right(kNvfp4, 128, 128);
  expect_right(kNvfp4, 256, 640);
}

}  // namespace
}  // namespace gpulift
