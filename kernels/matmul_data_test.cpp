#include "kernels/matmul_data.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

TEST(ElementBytes, OfEachType) {
  EXPECT_EQ(element_bytes(ElementType::kFp64), 8);
  EXPECT_EQ(element_bytes(ElementType::kFp32), 4);
  EXPECT_EQ(element_bytes(ElementType::kInt32), 4);
  EXPECT_EQ(element_bytes(ElementType::kFp16), 2);
  EXPECT_EQ(element_bytes(ElementType::kBf16), 2);
  EXPECT_EQ(element_bytes(ElementType::kFp8E4m3), 1);
  EXPECT_EQ(element_bytes(ElementType::kInt8), 1);
  EXPECT_THROW(element_bytes(ElementType::kFp4E2m1), std::invalid_argument) << "two in a byte";
}

TEST(MatmulData, RefusesTypesThatItHasNoUseFor) {
  EXPECT_THROW(fill_normals(nullptr, ElementType::kInt32, {}, {}, 1, 0, nullptr), std::invalid_argument);
  ProductPart part;
  part.type = ElementType::kFp8E4m3;
  EXPECT_THROW(add_squared_error(part, nullptr, nullptr, nullptr), std::invalid_argument);
}

class MatmulDataOnDevice : public DeviceTest {
 protected:
  template <typename T>
  std::vector<T> filled(ElementType type, const NormalMatrix& source, const Rows& rows) {
    const DeviceBuffer<T> data(device(), static_cast<std::size_t>(rows.count * source.columns));
    fill_normals(data.data(), type, source, rows, 1, 0, nullptr);
    return download(data);
  }
};

// With a million samples the standard errors are 0.001 for the mean, 0.0014 for the variance, 0.005 for the kurtosis.
TEST_F(MatmulDataOnDevice, ValuesAreStandardNormals) {
  const std::vector<float> values = filled<float>(ElementType::kFp32, {7, 1024, 1, false}, {0, 1024, 1});
  double sums[4] = {};
  double largest = 0;
  for (const double value : values) {
    sums[0] += value;
    sums[1] += value * value;
    sums[2] += value * value * value;
    sums[3] += value * value * value * value;
    largest = std::max(largest, std::abs(value));
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sums[0] / count, 0, 0.005);
  EXPECT_NEAR(sums[1] / count, 1, 0.007);
  EXPECT_NEAR(sums[2] / count, 0, 0.02);
  EXPECT_NEAR(sums[3] / count, 3, 0.05);
  EXPECT_GT(largest, 4);
  EXPECT_LT(largest, 6.8);
}

TEST_F(MatmulDataOnDevice, TheSeedAloneDecides) {
  const Rows rows{0, 16, 1};
  const NormalMatrix source{3, 32, 1, false};
  const NormalMatrix other{4, 32, 1, false};
  EXPECT_EQ(filled<float>(ElementType::kFp32, source, rows), filled<float>(ElementType::kFp32, source, rows));
  EXPECT_NE(filled<float>(ElementType::kFp32, source, rows), filled<float>(ElementType::kFp32, other, rows));
}

TEST_F(MatmulDataOnDevice, EveryTypeRoundsTheSameOriginals) {
  const Rows rows{0, 8, 1};
  const NormalMatrix source{5, 64, 64, false};
  const NormalMatrix integers{5, 64, 64, true};
  const auto originals = filled<float>(ElementType::kFp32, source, rows);
  const auto fp64 = filled<double>(ElementType::kFp64, source, rows);
  const auto fp16 = filled<__half>(ElementType::kFp16, source, rows);
  const auto bf16 = filled<__nv_bfloat16>(ElementType::kBf16, source, rows);
  const auto fp8 = filled<__nv_fp8_e4m3>(ElementType::kFp8E4m3, source, rows);
  const auto int8 = filled<std::int8_t>(ElementType::kInt8, integers, rows);
  for (std::size_t i = 0; i < originals.size(); ++i) {
    const float original = originals[i];
    EXPECT_EQ(fp64[i], static_cast<double>(original));
    EXPECT_EQ(static_cast<float>(fp16[i]), static_cast<float>(__half(original)));
    EXPECT_EQ(static_cast<float>(bf16[i]), static_cast<float>(__nv_bfloat16(original)));
    EXPECT_EQ(static_cast<float>(fp8[i]), static_cast<float>(__nv_fp8_e4m3(original)));
    EXPECT_EQ(static_cast<float>(int8[i]), std::min(std::max(std::nearbyint(original), -127.0f), 127.0f));
  }
}

TEST_F(MatmulDataOnDevice, ZerosFollowEachRowThatAsksForThem) {
  const auto plain = filled<float>(ElementType::kFp32, {7, 3, 1, false}, {0, 2, 1});
  const DeviceBuffer<float> data(device(), 2 * 5);
  fill_normals(data.data(), ElementType::kFp32, {7, 3, 1, false, 2}, {0, 2, 1}, 1, 0, nullptr);
  EXPECT_EQ(download(data),
            (std::vector<float>{plain[0], plain[1], plain[2], 0, 0, plain[3], plain[4], plain[5], 0, 0}));
}

TEST_F(MatmulDataOnDevice, TwoOfFourNeighboursOrAboutHalfAreZerosAndTheOthersStay) {
  constexpr std::size_t kCount = 64 * 256;
  NormalMatrix source{11, 256, 1, false};
  const auto dense = filled<float>(ElementType::kFp32, source, {0, 64, 1});
  source.zeros = Zeros::kTwoOfFour;
  const auto two_of_four = filled<float>(ElementType::kFp32, source, {0, 64, 1});
  source.mask = true;
  const auto mask = filled<float>(ElementType::kFp32, source, {0, 64, 1});
  source.mask = false;
  source.zeros = Zeros::kHalf;
  const auto half = filled<float>(ElementType::kFp32, source, {0, 64, 1});
  int kept = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(two_of_four[i] == 0 || two_of_four[i] == dense[i]);
    EXPECT_TRUE(half[i] == 0 || half[i] == dense[i]);
    EXPECT_EQ(mask[i], two_of_four[i] == 0 ? 0 : 1) << i;
    if (half[i] != 0) ++kept;
    if (i % 4 == 0) {
      EXPECT_EQ(std::count(&two_of_four[i], &two_of_four[i] + 4, 0.0f), 2) << i;
    }
  }
  EXPECT_NEAR(kept, kCount / 2, 400);  // six standard deviations
}

TEST_F(MatmulDataOnDevice, SampledRowsAreRowsOfTheWhole) {
  constexpr std::size_t kColumns = 16;
  const NormalMatrix source{9, kColumns, 1, false};
  const auto whole = filled<float>(ElementType::kFp32, source, {0, 40, 1});
  const auto sample = filled<float>(ElementType::kFp32, source, {0, 4, 10});
  const auto row_of = [](const std::vector<float>& matrix, std::size_t row) {
    const auto start = matrix.begin() + static_cast<std::ptrdiff_t>(row * kColumns);
    return std::vector<float>(start, start + kColumns);
  };
  for (std::size_t stripe = 0; stripe < 4; ++stripe) {
    int matches = 0;
    for (std::size_t row = 10 * stripe; row < 10 * stripe + 10; ++row) {
      if (row_of(whole, row) == row_of(sample, stripe)) ++matches;
    }
    EXPECT_EQ(matches, 1) << "stripe " << stripe;
  }
  EXPECT_EQ(filled<float>(ElementType::kFp32, source, {5, 1, 1}), row_of(whole, 5));
}

TEST_F(MatmulDataOnDevice, CopiesLieAtTheirDistanceAndNothingElseIsWritten) {
  const DeviceBuffer<float> data = upload(std::vector<float>(3 * 100, -99.0f));
  fill_normals(data.data(), ElementType::kFp32, {2, 8, 1, false}, {0, 10, 1}, 3, 100, nullptr);
  const std::vector<float> host = download(data);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(host[i], host[100 + i]);
    EXPECT_EQ(host[i], host[200 + i]);
    EXPECT_EQ(host[i] == -99.0f, i >= 80) << i;
  }
}

// A 3 x 2 product, two rows of which are compared: rows 0 and 1, by columns.
TEST_F(MatmulDataOnDevice, SquaredErrorByHand) {
  const auto product = upload<float>({1, 2, 100, 3, 5, 100});
  const auto reference = upload<double>({1, 2, 3, 4});
  const auto sums = upload<double>({10, 20});
  add_squared_error({product.data(), ElementType::kFp32, 3, {0, 2, 1}, 2}, reference.data(), sums.data(), nullptr);
  EXPECT_EQ(download(sums), (std::vector<double>{10 + 1, 20 + 1 + 4 + 9 + 16}));
}

TEST_F(MatmulDataOnDevice, SquaredErrorOfEachProductType) {
  const auto reference = upload<double>({1, 2});
  const auto difference = [&](const void* data, ElementType type) {
    const auto sums = upload<double>({0, 0});
    add_squared_error({data, type, 2, {0, 2, 1}, 1}, reference.data(), sums.data(), nullptr);
    return download(sums)[0];
  };
  EXPECT_EQ(difference(upload<__half>({__half(1.0f), __half(4.0f)}).data(), ElementType::kFp16), 4);
  EXPECT_EQ(difference(upload<__nv_bfloat16>({__nv_bfloat16(1.0f), __nv_bfloat16(5.0f)}).data(), ElementType::kBf16),
            9);
  EXPECT_EQ(difference(upload<std::int32_t>({1, 3}).data(), ElementType::kInt32), 1);
}

TEST_F(MatmulDataOnDevice, NanIsNotLost) {
  const auto product = upload<float>({1, std::numeric_limits<float>::quiet_NaN()});
  const auto reference = upload<double>({1, 2});
  const auto sums = upload<double>({0, 0});
  add_squared_error({product.data(), ElementType::kFp32, 2, {0, 2, 1}, 1}, reference.data(), sums.data(), nullptr);
  EXPECT_TRUE(std::isnan(download(sums)[0]));
}

}  // namespace
}  // namespace gpulift
