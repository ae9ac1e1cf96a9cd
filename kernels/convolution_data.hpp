#pragma once
// Operands of a convolution of images, and the error of its result, on the device. An element's value depends on the
// seed and its place alone, so that every layout holds the same numbers.

#include <cuda_runtime_api.h>  // __host__, __device__

#include <cstddef>
#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "kernels/matmul_data.hpp"

namespace gpulift {

/// Which axis lies innermost: the columns of an image, or its channels. Filters lie like images.
enum class ImageLayout { kNchw, kNhwc };

/// Of images x, filters w and results y: y; the gradient of x from that of y; the gradient of w from that of y.
enum class ConvolutionPass { kForward, kDataGradient, kFilterGradient };

/// Square filters of an odd side, padded so that a stride of 1 keeps the size.
struct ConvolutionShape {
  std::int64_t images = 1;
  std::int64_t channels = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t filters = 1;
  std::int64_t side = 1;
  std::int64_t stride = 1;

  __host__ __device__ std::int64_t padding() const { return side / 2; }
  __host__ __device__ std::int64_t out_height() const { return (height - 1) / stride + 1; }
  __host__ __device__ std::int64_t out_width() const { return (width - 1) / stride + 1; }
  /// A multiplication and an addition for each filter's element at each place, padding included: of every pass.
  double flops() const {
    return 2.0 * static_cast<double>(images * filters * out_height() * out_width() * channels * side * side);
  }
  bool operator==(const ConvolutionShape&) const = default;
};

/// Four axes: images or filters, channels, rows, columns.
struct ImageTensor {
  std::int64_t sides[4];
  std::int64_t strides[4];

  __host__ __device__ std::int64_t elements() const { return sides[0] * sides[1] * sides[2] * sides[3]; }
  __host__ __device__ std::int64_t offset(std::int64_t image, std::int64_t channel, std::int64_t row,
                                          std::int64_t column) const {
    return image * strides[0] + channel * strides[1] + row * strides[2] + column * strides[3];
  }
};

ImageTensor image_tensor(std::int64_t images, std::int64_t channels, std::int64_t rows, std::int64_t columns,
                         ImageLayout layout);

/// The three tensors of a convolution.
struct ConvolutionTensors {
  ConvolutionShape shape;
  ImageTensor images;
  ImageTensor filters;
  ImageTensor results;

  ConvolutionTensors(const ConvolutionShape& of, ImageLayout layout);
  /// What a pass writes.
  const ImageTensor& written_by(ConvolutionPass pass) const;
};

/// Offsets of the factors of one term in the two operands of a pass: images and filters, results and filters, images
/// and results. Negative where the term lies in the padding.
struct ConvolutionTerm {
  std::int64_t first;
  std::int64_t second;
};

/// How many terms an element that the pass writes is the sum of.
__host__ __device__ inline std::int64_t convolution_terms(const ConvolutionShape& shape, ConvolutionPass pass) {
  if (pass == ConvolutionPass::kForward) return shape.channels * shape.side * shape.side;
  if (pass == ConvolutionPass::kDataGradient) return shape.filters * shape.side * shape.side;
  return shape.images * shape.out_height() * shape.out_width();
}

/// Term number `term` of element number `element` of what the pass writes, its axes counted in their order.
__host__ __device__ inline ConvolutionTerm convolution_term(const ConvolutionTensors& tensors, ConvolutionPass pass,
                                                            const ImageTensor& written, std::int64_t element,
                                                            std::int64_t term) {
  constexpr ConvolutionTerm kNone{-1, -1};
  const ConvolutionShape& shape = tensors.shape;
  const std::int64_t column = element % written.sides[3];
  const std::int64_t row = element / written.sides[3] % written.sides[2];
  const std::int64_t channel = element / written.sides[3] / written.sides[2] % written.sides[1];
  const std::int64_t image = element / written.sides[3] / written.sides[2] / written.sides[1];
  const bool of_filters = pass == ConvolutionPass::kFilterGradient;
  // The filter's element, and the place of its result.
  const std::int64_t r = of_filters ? row : term / shape.side % shape.side;
  const std::int64_t s = of_filters ? column : term % shape.side;
  std::int64_t p = row;
  std::int64_t q = column;
  if (pass == ConvolutionPass::kDataGradient) {
    const std::int64_t down = row + shape.padding() - r;
    const std::int64_t right = column + shape.padding() - s;
    if (down < 0 || right < 0 || down % shape.stride != 0 || right % shape.stride != 0) return kNone;
    p = down / shape.stride;
    q = right / shape.stride;
    if (p >= shape.out_height() || q >= shape.out_width()) return kNone;
    const std::int64_t filter = term / (shape.side * shape.side);
    return {tensors.results.offset(image, filter, p, q), tensors.filters.offset(filter, channel, r, s)};
  }
  if (of_filters) {
    q = term % shape.out_width();
    p = term / shape.out_width() % shape.out_height();
  }
  const std::int64_t h = p * shape.stride - shape.padding() + r;
  const std::int64_t w = q * shape.stride - shape.padding() + s;
  if (h < 0 || w < 0 || h >= shape.height || w >= shape.width) return kNone;
  if (of_filters) {
    const std::int64_t n = term / (shape.out_height() * shape.out_width());
    return {tensors.images.offset(n, channel, h, w), tensors.results.offset(n, image, p, q)};
  }
  const std::int64_t c = term / (shape.side * shape.side);
  return {tensors.images.offset(image, c, h, w), tensors.filters.offset(channel, c, r, s)};
}

/// Writes standard normals: element number i, the axes counted in their order, is the same in every layout. kFp16 and
/// kBf16 alone.
void fill_images(void* data, ElementType type, const ImageTensor& tensor, std::uint64_t seed, cudaStream_t stream);

/// Where the tensors of a convolution lie.
struct ConvolutionBuffers {
  const void* images = nullptr;
  const void* filters = nullptr;
  const void* results = nullptr;
};

/// Compares what a pass wrote with FP64 sums over its own operands, at places that the seed draws.
class ConvolutionCheck {
 public:
  static constexpr int kSamples = 1024;

  explicit ConvolutionCheck(Device& device) : sums_(device, 2) {}
  /// The relative Frobenius error over kSamples elements; NaN where one of them is NaN. Waits for the stream.
  double error(const ConvolutionBuffers& buffers, ElementType type, const ConvolutionTensors& tensors,
               ConvolutionPass pass, std::uint64_t seed, cudaStream_t stream) const;

 private:
  DeviceBuffer<double> sums_;
};

}  // namespace gpulift
