#include "kernels/two_of_four.hpp"

#include <array>
#include <bit>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

__nv_bfloat16 number(std::size_t value) { return __float2bfloat16(static_cast<float>(value)); }

std::vector<std::uint16_t> bits_of(const std::vector<__nv_bfloat16>& values) {
  std::vector<std::uint16_t> bits;
  for (const __nv_bfloat16 value : values) bits.push_back(std::bit_cast<std::uint16_t>(value));
  return bits;
}

TEST(TwoOfFour, RefusesWhatItCannotLoadWhole) {
  alignas(16) std::array<__nv_bfloat16, 16> data{};
  std::array<std::uint8_t, 2> places{};
  EXPECT_THROW(find_places(data.data(), 12, places.data(), nullptr), std::invalid_argument);
  EXPECT_THROW(find_places(data.data() + 4, 8, places.data(), nullptr), std::invalid_argument);
  EXPECT_THROW(gather_places(data.data(), 12, places.data(), data.data(), nullptr), std::invalid_argument);
  EXPECT_THROW(gather_places(data.data() + 4, 8, places.data(), data.data(), nullptr), std::invalid_argument);
  EXPECT_THROW(gather_places(data.data(), 8, places.data(), data.data() + 4, nullptr), std::invalid_argument);
  EXPECT_NO_THROW(gather_places(data.data(), 0, places.data(), data.data(), nullptr));
}

/// All six ways of keeping two, each in both halves of a byte, over and over: more than one block, the last not full.
class TwoOfFourOnDevice : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    constexpr std::array<std::pair<std::size_t, std::size_t>, 6> kWays{
        {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}};
    constexpr std::size_t kFours = 2002;
    for (std::size_t four = 0; four < kFours; ++four) {
      const auto [first, second] = kWays[(four / 2 + four % 2 * (four / 12)) % kWays.size()];
      for (std::size_t place = 0; place < 4; ++place) {
        const bool kept = place == first || place == second;
        mask_.push_back(number(kept ? 1 : 0));
        dense_.push_back(number(1 + (4 * four + place) % 251));  // no two of a four are the same, and none is rounded
        if (kept) expected_.push_back(dense_.back());
      }
    }
  }

  std::vector<__nv_bfloat16> mask_;
  std::vector<__nv_bfloat16> dense_;
  std::vector<__nv_bfloat16> expected_;
};

TEST_F(TwoOfFourOnDevice, GathersWhatTheMaskKeepsOfOtherValuesAndNothingBehind) {
  const auto mask = upload(mask_);
  const auto dense = upload(dense_);
  const auto places = upload(std::vector<std::uint8_t>(mask_.size() / kPlacesOf + 1, 0xAA));
  const auto values = upload(std::vector<__nv_bfloat16>(expected_.size() + 4, number(300)));
  find_places(mask.data(), mask_.size(), places.data(), stream());
  gather_places(dense.data(), dense_.size(), places.data(), values.data(), stream());
  expected_.resize(expected_.size() + 4, number(300));
  EXPECT_EQ(bits_of(download(values)), bits_of(expected_));
  EXPECT_EQ(download(places).back(), 0xAA);
}

TEST_F(TwoOfFourOnDevice, TheFirstFourHasTheLowBitsAndMinusZeroIsZero) {
  const __nv_bfloat16 minus = __float2bfloat16(-0.0F);
  const auto mask = upload(std::vector<__nv_bfloat16>{minus, number(1), minus, number(1),  // 1 and 3
                                                      number(1), minus, number(1), number(0)});
  const auto places = upload(std::vector<std::uint8_t>{0xFF});
  find_places(mask.data(), kPlacesOf, places.data(), stream());
  EXPECT_EQ(download(places).front(), (1 + 4 * 3) + 16 * (0 + 4 * 2));
}

}  // namespace
}  // namespace gpulift
