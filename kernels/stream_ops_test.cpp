#include "kernels/stream_ops.hpp"

#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

constexpr float kUntouched = -7.0F;
constexpr std::size_t kGuard = 64;  // elements behind the output that nobody may write

/// Counts about the kernels' tile of 4096 elements and the read's block of 8 tiles.
class StreamOps : public DeviceTest, public testing::WithParamInterface<std::size_t> {
 protected:
  static std::vector<float> ramp(std::size_t count, float step) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = 1.0F + step * static_cast<float>(i % 8191);
    return values;
  }
  DeviceBuffer<float> guarded_output() { return upload(std::vector<float>(GetParam() + kGuard, kUntouched)); }

  /// The output, after the test that nothing behind it changed.
  std::vector<float> checked_output(const DeviceBuffer<float>& output) {
    std::vector<float> values = download(output);
    for (std::size_t i = GetParam(); i < values.size(); ++i)
      EXPECT_EQ(values[i], kUntouched) << "behind the end: " << i;
    values.resize(GetParam());
    return values;
  }
};

TEST_P(StreamOps, CopyCopiesAll) {
  const std::vector<float> values = ramp(GetParam(), 0.25F);
  const auto input = upload(values);
  const auto output = guarded_output();
  stream_copy(input.data(), output.data(), GetParam(), stream());
  EXPECT_EQ(checked_output(output), values);
}

TEST_P(StreamOps, WriteWritesAll) {
  const auto output = guarded_output();
  stream_write(output.data(), GetParam(), 2.5F, stream());
  EXPECT_EQ(checked_output(output), std::vector<float>(GetParam(), 2.5F));
}

TEST_P(StreamOps, TriadAddsAll) {
  const std::vector<float> left = ramp(GetParam(), 0.3F);
  const std::vector<float> right = ramp(GetParam(), -0.7F);
  const auto device_left = upload(left);
  const auto device_right = upload(right);
  const auto output = guarded_output();
  stream_triad(device_left.data(), device_right.data(), 1.1F, output.data(), GetParam(), stream());
  std::vector<float> expected(GetParam());
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = std::fma(1.1F, right[i], left[i]);
  EXPECT_EQ(checked_output(output), expected);
}

TEST_P(StreamOps, ReadSumsAll) {
  const std::vector<float> values = ramp(GetParam(), 0.1F);
  const auto input = upload(values);
  const auto partial_sums = upload(std::vector<std::uint32_t>(stream_read_partials(GetParam()), 0xFFFFFFFFu));
  stream_read(input.data(), GetParam(), partial_sums.data(), stream());
  std::uint32_t expected = 0;
  for (const float value : values) expected += std::bit_cast<std::uint32_t>(value);
  const std::vector<std::uint32_t> sums = download(partial_sums);
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::uint32_t{0}), expected);
}

INSTANTIATE_TEST_SUITE_P(Counts, StreamOps,
                         testing::Values(4, 1024, 4092, 4096, 4100, 32764, 32768, 32772, 1'000'004, 8'388'608));

TEST(StreamOpsArguments, RefuseWhatTheyCannotMoveInVectors) {
  alignas(16) float data[8] = {};
  EXPECT_THROW(stream_copy(data, data + 4, 3, nullptr), std::invalid_argument);
  EXPECT_THROW(stream_copy(data + 1, data + 4, 4, nullptr), std::invalid_argument);
  EXPECT_THROW(stream_write(data + 2, 4, 0.0F, nullptr), std::invalid_argument);
  EXPECT_THROW(stream_triad(data, data + 3, 1.0F, data + 4, 4, nullptr), std::invalid_argument);
  EXPECT_THROW(stream_read(data, 6, nullptr, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
