#include "kernels/ordered_sum.hpp"

#include <bit>
#include <cstdint>
#include <numeric>

#include "kernels/device_test.hpp"
#include "kernels/fill.hpp"

namespace gpulift {
namespace {

class OrderedSum : public DeviceTest {
 protected:
  std::vector<double> sums_of(const DeviceBuffer<float>& data) {
    const auto sums = upload(std::vector<double>(ordered_sum_results(data.size()), -1.0));
    ordered_sum(data.data(), data.size(), sums.data(), stream());
    return download(sums);
  }
  DeviceBuffer<float> normals(std::size_t count) {
    DeviceBuffer<float> data(device(), count);
    fill_normal(data.data(), count, 5, stream());
    return data;
  }
};

TEST_F(OrderedSum, IsTheSumOfTheWholeAndOfItsStretches) {
  for (const std::size_t count : {1u, 255u, 16384u, 16385u, 5'000'011u}) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 1.0F);
    for (float& value : values) value = static_cast<float>(static_cast<int>(value) % 1000);  // whole: sums are exact
    const auto sums = sums_of(upload(values));
    EXPECT_EQ(sums.front(), std::accumulate(values.begin(), values.end(), 0.0)) << count;
    EXPECT_EQ(std::accumulate(sums.begin() + 1, sums.end(), 0.0), sums.front()) << count;
  }
}

TEST_F(OrderedSum, OfNothingIsZero) {
  const auto sums = upload(std::vector<double>{-1.0});
  ordered_sum(nullptr, 0, sums.data(), stream());
  EXPECT_EQ(download(sums), std::vector<double>{0.0});
}

TEST_F(OrderedSum, HasTheSameBitsEveryTime) {
  const auto data = normals(1'000'003);
  const auto first = sums_of(data);
  for (int repeat = 0; repeat < 10; ++repeat) EXPECT_EQ(sums_of(data), first);
}

TEST_F(OrderedSum, ShowsTheLowestBitOfOneElement) {
  const auto data = normals(1'000'003);
  const double sum = sums_of(data).front();
  std::vector<float> values = download(data);
  for (const std::size_t place : {0u, 500'000u, 1'000'002u}) {
    std::vector<float> flipped = values;
    flipped[place] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(flipped[place]) ^ 1u);
    EXPECT_NE(sums_of(upload(flipped)).front(), sum) << place;
  }
}

}  // namespace
}  // namespace gpulift
