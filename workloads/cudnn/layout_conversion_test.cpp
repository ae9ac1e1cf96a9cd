#include "workloads/cudnn/layout_conversion.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#include "core/cuda/error.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

ImageTensor tensor(std::int64_t images, ImageLayout layout) { return image_tensor(images, 3, 5, 7, layout); }

using CudnnLayoutConversionOnDevice = DeviceTest;

TEST_F(CudnnLayoutConversionOnDevice, EveryNumberIsWhereItsLayoutPutsIt) {
  const ImageTensor from = tensor(2, ImageLayout::kNchw);
  const ImageTensor to = tensor(2, ImageLayout::kNhwc);
  std::vector<std::uint16_t> numbers;  // FP16 from 1 upwards
  for (std::int64_t i = 0; i < from.elements(); ++i) numbers.push_back(static_cast<std::uint16_t>(0x3C00 + i));
  const auto source = upload(numbers);
  const auto target = upload(std::vector<std::uint16_t>(numbers.size()));
  CudnnLayoutConversion(open_cudnn(), from, to).enqueue(source.data(), target.data(), stream());
  const std::vector<std::uint16_t> found = download(target);
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t h = 0; h < 5; ++h) {
        for (std::int64_t w = 0; w < 7; ++w) {
          ASSERT_EQ(found.at(static_cast<std::size_t>(to.offset(n, c, h, w))),
                    numbers.at(static_cast<std::size_t>(from.offset(n, c, h, w))));
        }
      }
    }
  }
}

TEST(CudnnLayoutConversion, RefusesATensorThatCudnnDoesNotTake) {
  EXPECT_THROW(CudnnLayoutConversion(nullptr, tensor(0, ImageLayout::kNchw), tensor(0, ImageLayout::kNhwc)), Error);
}

}  // namespace
}  // namespace gpulift
