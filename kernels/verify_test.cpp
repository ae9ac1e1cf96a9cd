#include "kernels/verify.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "kernels/device_test.hpp"
#include "kernels/fill.hpp"

namespace gpulift {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Verify : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) verifier_.emplace(device());
  }
  const Verifier& verifier() const { return *verifier_; }

  double relative_error(const std::vector<float>& actual, const std::vector<float>& expected) {
    const auto device_actual = upload(actual);
    const auto device_expected = upload(expected);
    return verifier().max_relative_error(device_actual.data(), device_expected.data(), actual.size(), 1.0, stream());
  }

 private:
  std::optional<Verifier> verifier_;
};

TEST_F(Verify, CountsEachWrongByteOfAPattern) {
  for (const std::size_t bytes : {5u, 8u, 4099u, 9'000'001u}) {
    const DeviceBuffer<unsigned char> data(device(), bytes);
    fill_pattern(data.data(), bytes, 11, stream(), 2);
    EXPECT_EQ(verifier().wrong_bytes(data.data(), bytes, 11, stream(), 2), 0) << bytes;
    EXPECT_GT(verifier().wrong_bytes(data.data(), bytes, 12, stream(), 2), 0) << bytes;
    EXPECT_GT(verifier().wrong_bytes(data.data(), bytes, 11, stream(), 3), 0) << bytes;
    std::vector<unsigned char> wrong = download(data);
    wrong.front() ^= 0x80u;
    wrong.back() ^= 0x01u;
    EXPECT_EQ(verifier().wrong_bytes(upload(wrong).data(), bytes, 11, stream(), 2), 2) << bytes;
  }
}

TEST_F(Verify, FindsABufferThatNobodyWrote) {
  const auto data = upload(std::vector<unsigned char>(100'000, 0xFF));
  EXPECT_GT(verifier().wrong_bytes(data.data(), data.bytes(), 1, stream()), 99'000);
}

TEST_F(Verify, CountsBytesThatDifferBetweenBuffers) {
  std::vector<unsigned char> values(1003);
  std::iota(values.begin(), values.end(), static_cast<unsigned char>(0));
  const auto left = upload(values);
  EXPECT_EQ(verifier().different_bytes(left.data(), upload(values).data(), values.size(), stream()), 0);
  for (const std::size_t i : {0u, 9u, 10u, 1002u}) ++values[i];
  EXPECT_EQ(verifier().different_bytes(left.data(), upload(values).data(), values.size(), stream()), 4);
}

TEST_F(Verify, CountsAndSumsWords) {
  std::vector<std::uint32_t> words(70'000, 0xDEADBEEFu);
  EXPECT_EQ(verifier().different_words(upload(words).data(), words.size(), 0xDEADBEEFu, stream()), 0);
  words[1] = 1;
  words.back() = 2;
  EXPECT_EQ(verifier().different_words(upload(words).data(), words.size(), 0xDEADBEEFu, stream()), 2);
  EXPECT_EQ(verifier().sum_of_words(upload(words).data(), words.size(), stream()),
            std::accumulate(words.begin(), words.end(), std::uint32_t{0}));
}

TEST_F(Verify, SumIsThatOfDoublePrecision) {
  std::vector<float> values(100'000, 0.1F);
  EXPECT_NEAR(verifier().sum(upload(values).data(), values.size(), stream()), 1e5 * double{0.1F}, 1e-6);
  values[77'777] = kNan;
  EXPECT_TRUE(std::isnan(verifier().sum(upload(values).data(), values.size(), stream())));
}

TEST_F(Verify, RelativeErrorIsTheLargest) {
  EXPECT_EQ(relative_error({1, 2, 3}, {1, 2, 3}), 0);
  EXPECT_NEAR(relative_error({1, 12, 3.3F}, {1, 10, 3}), 0.2, 1e-7);
  EXPECT_NEAR(relative_error({-8, 1}, {-10, 1}), 0.2, 1e-7);
  EXPECT_NEAR(relative_error({0.002F}, {0.001F}), 0.001, 1e-9) << "below the floor of 1 an error is absolute";
}

TEST_F(Verify, NanShowsWhereverItIs) {
  std::vector<float> values(100'000, 1.0F);
  const std::vector<float> expected = values;
  values[0] = 1e30F;
  for (const std::size_t i : {1u, 50'000u, 99'999u}) {
    std::vector<float> actual = values;
    actual[i] = kNan;
    EXPECT_TRUE(std::isnan(relative_error(actual, expected))) << i;
    EXPECT_TRUE(std::isnan(relative_error(expected, actual))) << i;
  }
  EXPECT_TRUE(std::isnan(relative_error({-kNan}, {1})));
  EXPECT_EQ(relative_error({kInfinity}, {1}), std::numeric_limits<double>::infinity());
}

TEST_F(Verify, ReadsTheNarrowTypes) {
  const auto expected = upload(std::vector<double>{1.0, 4.0});
  const auto halves = upload(std::vector<__half>{__float2half(1.0F), __float2half(5.0F)});
  const auto bfloats = upload(std::vector<__nv_bfloat16>{__float2bfloat16(1.5F), __float2bfloat16(4.0F)});
  EXPECT_EQ(verifier().max_relative_error(halves.data(), expected.data(), 2, 1.0, stream()), 0.25);
  EXPECT_EQ(verifier().max_relative_error(bfloats.data(), expected.data(), 2, 1.0, stream()), 0.5);
}

TEST_F(Verify, RefusesMisalignedData) {
  const DeviceBuffer<std::byte> data(device(), 32);
  EXPECT_THROW(verifier().wrong_bytes(data.data() + 1, 8, 1, stream()), std::invalid_argument);
  EXPECT_THROW(verifier().different_bytes(data.data(), data.data() + 4, 8, stream()), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
