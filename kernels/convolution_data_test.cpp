#include "kernels/convolution_data.hpp"

#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <vector>

#include "kernels/device_test.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

constexpr ConvolutionPass kPasses[] = {ConvolutionPass::kForward, ConvolutionPass::kDataGradient,
                                       ConvolutionPass::kFilterGradient};
constexpr ConvolutionShape kStrided{2, 3, 5, 6, 4, 3, 2};

std::vector<float> integers(const ImageTensor& tensor, std::uint64_t seed) {
  std::vector<float> data(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(random_bits(seed, i) % 7) - 3;
  return data;
}

/// Where element number `element` lies.
std::size_t place_of(const ImageTensor& tensor, std::int64_t element) {
  const std::int64_t rows = element / tensor.sides[3];
  const std::int64_t channels = rows / tensor.sides[2];
  return static_cast<std::size_t>(tensor.offset(channels / tensor.sides[1], channels % tensor.sides[1],
                                                rows % tensor.sides[2], element % tensor.sides[3]));
}

/// A pass on the host.
std::vector<float> computed(const ConvolutionTensors& tensors, ConvolutionPass pass, const std::vector<float>& first,
                            const std::vector<float>& second) {
  const ImageTensor& written = tensors.written_by(pass);
  std::vector<float> result(static_cast<std::size_t>(written.elements()));
  for (std::int64_t element = 0; element < written.elements(); ++element) {
    float& sum = result[place_of(written, element)];
    for (std::int64_t term = 0; term < convolution_terms(tensors.shape, pass); ++term) {
      const ConvolutionTerm factors = convolution_term(tensors, pass, written, element, term);
      if (factors.first < 0) continue;
      sum += first.at(static_cast<std::size_t>(factors.first)) * second.at(static_cast<std::size_t>(factors.second));
    }
  }
  return result;
}

double product(const std::vector<float>& left, const std::vector<float>& right) {
  double sum = 0;
  for (std::size_t i = 0; i < left.size(); ++i) sum += static_cast<double>(left[i]) * static_cast<double>(right[i]);
  return sum;
}

TEST(ConvolutionShape, CountsItsWork) {
  const ConvolutionShape shape{32, 64, 56, 56, 64, 3, 1};
  EXPECT_EQ(shape.out_height(), 56);
  EXPECT_EQ(shape.flops(), 2.0 * 32 * 64 * 56 * 56 * 64 * 9);
  EXPECT_EQ(kStrided.out_height(), 3);
  EXPECT_EQ(kStrided.out_width(), 3);
  EXPECT_EQ((ConvolutionShape{1, 1, 56, 56, 1, 1, 2}.out_width()), 28);
}

TEST(ImageTensor, EveryElementHasAPlaceOfItsOwnInEachLayout) {
  for (const ImageLayout layout : {ImageLayout::kNchw, ImageLayout::kNhwc}) {
    const ImageTensor tensor = image_tensor(2, 3, 4, 5, layout);
    std::set<std::size_t> places;
    for (std::int64_t element = 0; element < tensor.elements(); ++element) places.insert(place_of(tensor, element));
    EXPECT_EQ(places.size(), 120U);
    EXPECT_EQ(*places.rbegin(), 119U);
  }
  EXPECT_EQ(image_tensor(2, 3, 4, 5, ImageLayout::kNchw).offset(0, 1, 0, 0), 20);
  EXPECT_EQ(image_tensor(2, 3, 4, 5, ImageLayout::kNhwc).offset(0, 1, 0, 0), 1);
}

TEST(ConvolutionTerm, OnesCountTheElementsUnderTheFilter) {
  const ConvolutionTensors tensors({1, 2, 4, 4, 1, 3, 1}, ImageLayout::kNchw);
  const std::vector<float> images(32, 1);
  const std::vector<float> filters(18, 1);
  const std::vector<float> found = computed(tensors, ConvolutionPass::kForward, images, filters);
  EXPECT_EQ(found, (std::vector<float>{8, 12, 12, 8, 12, 18, 18, 12, 12, 18, 18, 12, 8, 12, 12, 8}));
}

TEST(ConvolutionTerm, AStrideSkipsResultsAndAFilterIsNotTurnedOver) {
  const ConvolutionTensors tensors({1, 1, 1, 5, 1, 3, 2}, ImageLayout::kNchw);
  const std::vector<float> images{1, 2, 3, 4, 5};
  const std::vector<float> filters{0, 0, 0, 100, 10, 1, 0, 0, 0};
  EXPECT_EQ(computed(tensors, ConvolutionPass::kForward, images, filters), (std::vector<float>{12, 234, 450}));
}

// <dy, conv(x, w)> = <x, data gradient> = <w, filter gradient>: the sums are the same terms in another order.
TEST(ConvolutionTerm, GradientsAreThoseOfTheForwardPass) {
  for (const ImageLayout layout : {ImageLayout::kNchw, ImageLayout::kNhwc}) {
    for (const ConvolutionShape& shape : {kStrided, ConvolutionShape{2, 3, 4, 5, 6, 1, 1}}) {
      const ConvolutionTensors tensors(shape, layout);
      const std::vector<float> x = integers(tensors.images, 1);
      const std::vector<float> w = integers(tensors.filters, 2);
      const std::vector<float> dy = integers(tensors.results, 3);
      const double expected = product(dy, computed(tensors, ConvolutionPass::kForward, x, w));
      EXPECT_NE(expected, 0);
      EXPECT_EQ(product(x, computed(tensors, ConvolutionPass::kDataGradient, dy, w)), expected);
      EXPECT_EQ(product(w, computed(tensors, ConvolutionPass::kFilterGradient, x, dy)), expected);
    }
  }
}

TEST(ConvolutionData, RefusesOtherTypes) {
  EXPECT_THROW(fill_images(nullptr, ElementType::kFp32, image_tensor(1, 1, 1, 1, ImageLayout::kNchw), 0, nullptr),
               std::invalid_argument);
}

class ConvolutionDataOnDevice : public DeviceTest {
 protected:
  DeviceBuffer<__nv_bfloat16> uploaded(const std::vector<float>& values) {
    std::vector<__nv_bfloat16> rounded;
    for (const float value : values) rounded.emplace_back(value);
    return upload(rounded);
  }
};

TEST_F(ConvolutionDataOnDevice, BothLayoutsHoldTheSameNormals) {
  const ImageTensor nchw = image_tensor(2, 64, 9, 7, ImageLayout::kNchw);
  const ImageTensor nhwc = image_tensor(2, 64, 9, 7, ImageLayout::kNhwc);
  const DeviceBuffer<__nv_bfloat16> first(device(), static_cast<std::size_t>(nchw.elements()));
  const DeviceBuffer<__nv_bfloat16> second(device(), static_cast<std::size_t>(nchw.elements()));
  fill_images(first.data(), ElementType::kBf16, nchw, 5, stream());
  fill_images(second.data(), ElementType::kBf16, nhwc, 5, stream());
  const std::vector<__nv_bfloat16> left = download(first);
  const std::vector<__nv_bfloat16> right = download(second);
  double squares = 0;
  for (std::int64_t element = 0; element < nchw.elements(); ++element) {
    const float value = __bfloat162float(left[place_of(nchw, element)]);
    ASSERT_EQ(value, __bfloat162float(right[place_of(nhwc, element)])) << element;
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  EXPECT_NEAR(squares / static_cast<double>(nchw.elements()), 1, 0.1);
}

TEST_F(ConvolutionDataOnDevice, TheCheckFindsAWrongResultInEveryPass) {
  const ConvolutionCheck convolution_check(device());
  for (const ConvolutionPass pass : kPasses) {
    const ConvolutionTensors tensors(kStrided, ImageLayout::kNhwc);
    std::vector<float> data[] = {integers(tensors.images, 1), integers(tensors.filters, 2),
                                 integers(tensors.results, 3)};
    const std::size_t written = pass == ConvolutionPass::kForward ? 2 : pass == ConvolutionPass::kDataGradient ? 0 : 1;
    const std::vector<float>& first = pass == ConvolutionPass::kDataGradient ? data[2] : data[0];
    const std::vector<float>& second = pass == ConvolutionPass::kFilterGradient ? data[2] : data[1];
    data[written] = computed(tensors, pass, first, second);
    const auto error = [&] {
      const DeviceBuffer<__nv_bfloat16> buffers[] = {uploaded(data[0]), uploaded(data[1]), uploaded(data[2])};
      return convolution_check.error({buffers[0].data(), buffers[1].data(), buffers[2].data()}, ElementType::kBf16,
                                     tensors, pass, 7, stream());
    };
    EXPECT_LT(error(), 4e-3);
    for (float& value : data[written]) value += 1;
    EXPECT_GT(error(), 4e-3);
    for (float& value : data[written]) value = std::nanf("");
    EXPECT_TRUE(std::isnan(error()));
  }
}

}  // namespace
}  // namespace gpulift
