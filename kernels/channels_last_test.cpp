#include "kernels/channels_last.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

using Numbers = std::vector<std::uint16_t>;

constexpr std::size_t kGuard = 64;  // numbers behind the result that nobody may write
constexpr std::uint16_t kUntouched = 0xBEEF;

/// Neighbours differ in whatever order they lie.
Numbers numbers(std::size_t count) {
  Numbers values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::uint16_t>(i * 40503 >> 7);
  return values;
}

/// The result on the host, and the guard behind it.
Numbers expected(const ImageCounts& counts, const Numbers& from) {
  Numbers to(counts.elements() + kGuard, kUntouched);
  std::size_t next = 0;
  for (std::size_t image = 0; image < counts.images; ++image) {
    for (std::size_t pixel = 0; pixel < counts.pixels; ++pixel) {
      for (std::size_t channel = 0; channel < counts.channels; ++channel) {
        to[next++] = from[(image * counts.channels + channel) * counts.pixels + pixel];
      }
    }
  }
  return to;
}

class ChannelsLast : public DeviceTest, public testing::WithParamInterface<ImageCounts> {
 protected:
  using Kernel = void (*)(const ImageCounts&, const std::uint16_t*, std::uint16_t*, cudaStream_t);

  /// Both tensors begin `shift` numbers behind an aligned address.
  void expect_as_on_host(Kernel kernel, std::size_t shift = 0) {
    const ImageCounts& counts = GetParam();
    Numbers from = numbers(counts.elements());
    Numbers wanted = expected(counts, from);
    from.insert(from.begin(), shift, 0);
    wanted.insert(wanted.begin(), shift, kUntouched);
    const auto source = upload(from);
    const auto target = upload(Numbers(wanted.size(), kUntouched));
    kernel(counts, source.data() + shift, target.data() + shift, stream());
    const Numbers found = download(target);
    const auto [at, other] = std::mismatch(found.begin(), found.end(), wanted.begin());
    EXPECT_EQ(at, found.end()) << "number " << at - found.begin() << " of " << counts.elements();
  }
};

TEST_P(ChannelsLast, EveryNumberIsWhereTheHostPutsIt) { expect_as_on_host(to_channels_last); }

TEST_P(ChannelsLast, DataNeedNotBeAligned) { expect_as_on_host(to_channels_last, 3); }

TEST_P(ChannelsLast, TheReferenceIsThatOfTheHost) { expect_as_on_host(to_channels_last_reference); }

/// Tails of tiles in both directions, in wide, half wide and narrow accesses; layers and inputs of ResNet-50.
INSTANTIATE_TEST_SUITE_P(Counts, ChannelsLast,
                         testing::Values(ImageCounts{0, 8, 8}, ImageCounts{1, 1, 1}, ImageCounts{3, 1, 49},
                                         ImageCounts{2, 3, 1}, ImageCounts{2, 3, 3136}, ImageCounts{3, 3, 49},
                                         ImageCounts{2, 4, 1025}, ImageCounts{2, 5, 7}, ImageCounts{5, 8, 4},
                                         ImageCounts{5, 8, 8}, ImageCounts{3, 64, 1}, ImageCounts{3, 64, 49},
                                         ImageCounts{2, 64, 3136}, ImageCounts{3, 65, 65}, ImageCounts{3, 72, 136},
                                         ImageCounts{3, 72, 140}, ImageCounts{2, 256, 1}, ImageCounts{2, 256, 49},
                                         ImageCounts{2, 256, 196}, ImageCounts{2, 256, 3136}, ImageCounts{2, 2048, 1},
                                         ImageCounts{2, 2048, 49}, ImageCounts{1, 2048, 3136}),
                         [](const auto& info) {
                           return std::to_string(info.param.images) + "x" + std::to_string(info.param.channels) + "x" +
                                  std::to_string(info.param.pixels);
                         });

TEST(ChannelsLastArguments, RefuseMoreTilesThanAGridHas) {
  const ImageCounts many{std::size_t{1} << 31, 1, 1};
  EXPECT_THROW(to_channels_last(many, nullptr, nullptr, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
