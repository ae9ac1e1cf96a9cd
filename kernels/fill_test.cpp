#include "kernels/fill.hpp"

#include <stdexcept>

#include "kernels/device_test.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

TEST(RandomBits, AreThoseOfSplitMix64) {  // the test vector that Vigna's splitmix64.c gives for this seed
  EXPECT_EQ(random_bits(1234567, 0), 6457827717110365317u);
  EXPECT_EQ(random_bits(1234567, 1), 3203168211198807973u);
  EXPECT_EQ(random_bits(1234567, 2), 9817491932198370423u);
}

TEST(FillPattern, RefusesMisalignedData) {
  alignas(8) std::byte data[16] = {};
  EXPECT_THROW(fill_pattern(data + 4, 8, 1, nullptr), std::invalid_argument);
}

class Fill : public DeviceTest {};

TEST_F(Fill, PatternHasItsWordsLowByteFirstAndEndsWhereItShould) {
  for (const std::size_t bytes : {1u, 8u, 21u, 4096u, 10'000'003u}) {
    const auto data = upload(std::vector<unsigned char>(bytes + 8, 0xAA));
    fill_pattern(data.data(), bytes, 99, stream(), 5);
    const std::vector<unsigned char> found = download(data);
    std::vector<unsigned char> expected(bytes + 8, 0xAA);
    for (std::size_t i = 0; i < bytes; ++i) {
      expected[i] = static_cast<unsigned char>(random_bits(99, 5 + i / 8) >> (8 * (i % 8)));
    }
    EXPECT_EQ(found, expected) << bytes;
  }
}

struct Moments {
  double mean;
  double variance;
  double fourth;
};

Moments moments(const std::vector<float>& values) {
  Moments sums{};
  for (const float value : values) {
    const double v = static_cast<double>(value);
    sums.mean += v;
    sums.variance += v * v;
    sums.fourth += v * v * v * v;
  }
  const auto n = static_cast<double>(values.size());
  return {sums.mean / n, sums.variance / n, sums.fourth / n};
}

/// The bounds are more than five standard errors wide at 2^22 elements (mean 0.0005, variance 0.0007, fourth 0.005).
void expect_standard_normal(const std::vector<float>& values) {
  const Moments found = moments(values);
  EXPECT_NEAR(found.mean, 0, 0.0025);
  EXPECT_NEAR(found.variance, 1, 0.0035);
  EXPECT_NEAR(found.fourth, 3, 0.03);
}

constexpr std::size_t kMany = std::size_t{1} << 22;

TEST_F(Fill, NormalsOfEachTypeHaveTheMomentsOfANormal) {
  const DeviceBuffer<float> floats(device(), kMany);
  fill_normal(floats.data(), kMany, 7, stream());
  expect_standard_normal(download(floats));

  const DeviceBuffer<__half> halves(device(), kMany);
  fill_normal(halves.data(), kMany, 7, stream());
  std::vector<float> values;
  for (const __half value : download(halves)) values.push_back(__half2float(value));
  expect_standard_normal(values);

  const DeviceBuffer<__nv_bfloat16> bfloats(device(), kMany);
  fill_normal(bfloats.data(), kMany, 7, stream());
  values.clear();
  for (const __nv_bfloat16 value : download(bfloats)) values.push_back(__bfloat162float(value));
  expect_standard_normal(values);
}

TEST_F(Fill, NormalsDependOnTheSeedAloneAndNotOnTheCount) {
  const DeviceBuffer<float> first(device(), 1001);
  const DeviceBuffer<float> longer(device(), 5000);
  const DeviceBuffer<float> other(device(), 1001);
  fill_normal(first.data(), first.size(), 3, stream());
  fill_normal(longer.data(), longer.size(), 3, stream());
  fill_normal(other.data(), other.size(), 4, stream());
  const std::vector<float> values = download(first);
  std::vector<float> head = download(longer);
  head.resize(values.size());
  EXPECT_EQ(values, head);
  EXPECT_NE(values, download(other));
}

TEST_F(Fill, NormalsScaleWithTheDeviation) {
  const DeviceBuffer<float> unit(device(), 256);
  const DeviceBuffer<float> quarter(device(), 256);
  fill_normal(unit.data(), unit.size(), 3, stream());
  fill_normal(quarter.data(), quarter.size(), 3, stream(), 0.25F);
  std::vector<float> expected = download(unit);
  for (float& value : expected) value *= 0.25F;
  EXPECT_EQ(download(quarter), expected);
}

}  // namespace
}  // namespace gpulift
