#include "workloads/host_pattern.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/device_test.hpp"
#include "kernels/fill.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

TEST(HostPattern, CatchesOneWrongByteAnywhere) {
  std::vector<std::byte> data(37);
  fill_host_pattern(data, 5, 3);
  EXPECT_EQ(wrong_host_bytes(data, 5, 3), 0);
  for (std::byte& byte : data) {
    byte ^= std::byte{1};
    EXPECT_EQ(wrong_host_bytes(data, 5, 3), 1);
    byte ^= std::byte{1};
  }
}

TEST(HostPattern, CatchesUnwrittenAndShiftedData) {
  std::vector<std::byte> data(4096, std::byte{0xFF});
  EXPECT_GT(wrong_host_bytes(data, 5), 4000);
  fill_host_pattern(data, 5);
  EXPECT_GT(wrong_host_bytes(data, 6), 4000) << "another seed";
  EXPECT_GT(wrong_host_bytes(data, 5, 1), 4000) << "another place";
}

TEST(HostPattern, StartsAtItsFirstWord) {
  std::vector<std::byte> data(8);
  fill_host_pattern(data, 5, 9);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(std::to_integer<std::uint64_t>(data[i]), (random_bits(5, 9) >> (8 * i)) & 0xFF);
  }
}

class HostPatternOnDevice : public DeviceTest {};

TEST_F(HostPatternOnDevice, IsThatOfTheDevice) {
  const DeviceBuffer<std::byte> data(device(), 100'003);
  fill_pattern(data.data(), data.bytes(), 5, stream(), 3);
  EXPECT_EQ(wrong_host_bytes(download(data), 5, 3), 0);
}

}  // namespace
TEST(HostPattern, FillsEveryByteWithTheValueToTheLast) {
  std::vector<std::byte> data((std::size_t{3} << 20) + 5, std::byte{1});
  fill_host_bytes(data, std::byte{0xFF});
  EXPECT_EQ(std::ranges::count(data, std::byte{0xFF}), static_cast<std::ptrdiff_t>(data.size()));
}

}  // namespace gpulift
