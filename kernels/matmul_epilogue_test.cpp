#include "kernels/matmul_epilogue.hpp"

#include <cmath>
#include <stdexcept>
#include <vector>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

/// From -6 to 6 and far beyond, where the exponential overflows.
std::vector<__nv_bfloat16> some_numbers(std::size_t count) {
  std::vector<__nv_bfloat16> numbers;
  for (std::size_t i = 0; i < count; ++i) {
    const float small = static_cast<float>(i * 37 % 97) / 8 - 6;
    numbers.emplace_back(i % 31 == 0 ? 100 * small : small);
  }
  return numbers;
}

double as_double(__nv_bfloat16 number) { return static_cast<double>(static_cast<float>(number)); }

TEST(MatmulEpilogue, RefusesRowsThatNoPackDivides) {
  EXPECT_THROW(bias_gelu(nullptr, nullptr, nullptr, 12, 1, nullptr), std::invalid_argument);
  EXPECT_NO_THROW(bias_gelu(nullptr, nullptr, nullptr, 8, 0, nullptr)) << "nothing to do";
}

using MatmulEpilogueOnDevice = DeviceTest;

TEST_F(MatmulEpilogueOnDevice, AgreesWithTheHost) {
  constexpr std::size_t kRows = 24;
  constexpr std::size_t kColumns = 1023;  // 3069 packs: the last block is not full
  const auto from = some_numbers(kRows * kColumns);
  const auto bias = some_numbers(kRows);
  const auto from_device = upload(from);
  const auto bias_device = upload(bias);
  const DeviceBuffer<__nv_bfloat16> to(device(), from.size());
  bias_gelu(from_device.data(), bias_device.data(), to.data(), kRows, kColumns, stream());
  const auto found = download(to);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double expected = gelu(as_double(from[i]) + as_double(bias[i % kRows]));
    ASSERT_NEAR(as_double(found[i]), expected, 0x1p-8 * std::abs(expected) + 1e-6) << i;
  }
}

TEST_F(MatmulEpilogueOnDevice, WorksInPlace) {
  const auto from = some_numbers(64);
  const auto bias = some_numbers(8);
  const auto data = upload(from);
  const auto bias_device = upload(bias);
  bias_gelu(data.data(), bias_device.data(), data.data(), 8, 8, stream());
  EXPECT_NEAR(as_double(download(data)[9]), gelu(as_double(from[9]) + as_double(bias[1])), 0.02);
}

TEST_F(MatmulEpilogueOnDevice, TheReferenceAddsEachRowsBiasAndTakesTheSameFunction) {
  const auto bias = some_numbers(16);
  const auto bias_device = upload(bias);
  const auto values = upload(std::vector<double>{0.5, -0.5, 1.5, -3});
  add_bias(values.data(), {3, 2, 1}, 2, bias_device.data(), stream());  // rows 3 and 4 by two columns
  apply_gelu(values.data(), 4, stream());
  const auto found = download(values);
  EXPECT_DOUBLE_EQ(found[0], gelu(0.5 + as_double(bias[3])));
  EXPECT_DOUBLE_EQ(found[1], gelu(-0.5 + as_double(bias[4])));
  EXPECT_DOUBLE_EQ(found[2], gelu(1.5 + as_double(bias[3])));
  EXPECT_DOUBLE_EQ(found[3], gelu(-3 + as_double(bias[4])));
}

}  // namespace
}  // namespace gpulift
