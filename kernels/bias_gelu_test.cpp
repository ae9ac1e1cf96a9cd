#include "kernels/bias_gelu.hpp"

#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "kernels/device_test.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

using Numbers = std::vector<__nv_bfloat16>;

constexpr std::size_t kGuard = 64;  // numbers behind a result that nobody may write
constexpr float kUntouched = -77;
constexpr int kColumns = 24;

Numbers numbers(std::size_t count, std::uint64_t seed, double largest) {
  Numbers values;
  for (std::size_t i = 0; i < count; ++i) {
    const double uniform = static_cast<double>(random_bits(seed, i) >> 11) / 9007199254740992.0;
    values.push_back(__float2bfloat16(static_cast<float>(largest * (2 * uniform - 1))));
  }
  return values;
}

/// Counts that are no pack, one, a part of one, a part of a row, and about a block's 2048.
class BiasGeluOf : public DeviceTest, public testing::WithParamInterface<std::size_t> {
 protected:
  /// Every result of `way` is within tolerance * max(1, |expected|), and what lies behind is untouched.
  template <typename T = __nv_bfloat16, typename Way>
  void expect_gelu(double tolerance, Way way) {
    // Up to 14 in size: exponentials there overflow.
    const Numbers input = numbers(GetParam(), 1, 12);
    const Numbers bias = numbers(kColumns, 2, 2);
    const auto device_input = upload(input);
    const auto device_bias = upload(bias);
    const auto result = upload(std::vector<T>(GetParam() + kGuard, T(kUntouched)));
    way({.count = GetParam(), .columns = kColumns, .input = device_input.data(), .bias = device_bias.data()},
        result.data());
    const std::vector<T> found = download(result);
    for (std::size_t i = 0; i < GetParam(); ++i) {
      const double x =
          static_cast<double>(__bfloat162float(input[i])) + static_cast<double>(__bfloat162float(bias[i % kColumns]));
      const double expected = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      ASSERT_NEAR(static_cast<double>(static_cast<float>(found[i])), expected,
                  tolerance * std::max(1.0, std::abs(expected)))
          << i;
    }
    for (std::size_t i = GetParam(); i < found.size(); ++i) {
      ASSERT_EQ(static_cast<float>(found[i]), kUntouched) << "behind the end: " << i;
    }
  }
};

constexpr double kHalfUlp = 1.0 / 256;  // of BF16, whose mantissa has 8 bits, with what FP32 adds

TEST_P(BiasGeluOf, IsThatOfDoublePrecision) {
  expect_gelu(kHalfUlp, [&](BiasGelu data, __nv_bfloat16* output) {
    data.output = output;
    bias_gelu(data, stream());
  });
}

TEST_P(BiasGeluOf, ReferenceIsThatOfTheHost) {
  expect_gelu<float>(1e-6, [&](const BiasGelu& data, float* output) { bias_gelu_reference(data, output, stream()); });
}

INSTANTIATE_TEST_SUITE_P(Counts, BiasGeluOf, testing::Values(0, 1, 7, 8, 9, 23, 2047, 2048, 2049, 100'003));

TEST(BiasGeluArguments, RefuseWhatTheyCannotLoadInPacks) {
  alignas(16) const __nv_bfloat16 data[16] = {};
  for (const int columns : {0, 4, 12}) EXPECT_THROW(bias_gelu({.columns = columns}, nullptr), std::invalid_argument);
  EXPECT_THROW(bias_gelu({.bias = data + 1}, nullptr), std::invalid_argument);
  EXPECT_THROW(bias_gelu({.input = data + 1}, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
