#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cub/block/block_reduce.cuh>
#include <stdexcept>

#include "core/cuda/check.hpp"
#include "kernels/convolution_data.hpp"
#include "kernels/normal.cuh"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void fill_kernel(T* data, ImageTensor tensor, std::uint64_t seed) {
  const std::int64_t count = tensor.elements();
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t rows = i / tensor.sides[3];
    const std::int64_t channels = rows / tensor.sides[2];
    const std::int64_t place = tensor.offset(channels / tensor.sides[1], channels % tensor.sides[1],
                                             rows % tensor.sides[2], i % tensor.sides[3]);
    data[place] = static_cast<T>(standard_normals(random_bits(seed, static_cast<std::uint64_t>(i))).x);
  }
}

/// A block for each sample.
template <typename T>
__global__ __launch_bounds__(kThreads) void error_kernel(const T* first, const T* second, const T* written,
                                                         ConvolutionTensors tensors, ConvolutionPass pass,
                                                         ImageTensor layout, std::uint64_t seed, double* sums) {
  using Reduce = cub::BlockReduce<double, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const auto element =
      static_cast<std::int64_t>(random_bits(seed, blockIdx.x) % static_cast<std::uint64_t>(layout.elements()));
  const std::int64_t terms = convolution_terms(tensors.shape, pass);
  double sum = 0;
  for (std::int64_t term = threadIdx.x; term < terms; term += kThreads) {
    const ConvolutionTerm factors = convolution_term(tensors, pass, layout, element, term);
    if (factors.first < 0) continue;
    sum += static_cast<double>(static_cast<float>(first[factors.first])) *
           static_cast<double>(static_cast<float>(second[factors.second]));
  }
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x != 0) return;
  const std::int64_t rows = element / layout.sides[3];
  const std::int64_t channels = rows / layout.sides[2];
  const std::int64_t place = layout.offset(channels / layout.sides[1], channels % layout.sides[1],
                                           rows % layout.sides[2], element % layout.sides[3]);
  const double difference = static_cast<double>(static_cast<float>(written[place])) - sum;
  atomicAdd(&sums[0], difference * difference);
  atomicAdd(&sums[1], sum * sum);
}

template <typename T>
void launch_fill(void* data, const ImageTensor& tensor, std::uint64_t seed, cudaStream_t stream) {
  constexpr std::int64_t kMostBlocks = 4096;
  const auto blocks = std::clamp<std::int64_t>((tensor.elements() + kThreads - 1) / kThreads, 1, kMostBlocks);
  fill_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(static_cast<T*>(data), tensor, seed);
  check(cudaGetLastError());
}

template <typename T>
void launch_error(const ConvolutionBuffers& buffers, const ConvolutionTensors& tensors, ConvolutionPass pass,
                  std::uint64_t seed, double* sums, cudaStream_t stream) {
  const void* first = pass == ConvolutionPass::kDataGradient ? buffers.results : buffers.images;
  const void* second = pass == ConvolutionPass::kFilterGradient ? buffers.results : buffers.filters;
  const void* written = pass == ConvolutionPass::kForward        ? buffers.results
                        : pass == ConvolutionPass::kDataGradient ? buffers.images
                                                                 : buffers.filters;
  error_kernel<<<ConvolutionCheck::kSamples, kThreads, 0, stream>>>(
      static_cast<const T*>(first), static_cast<const T*>(second), static_cast<const T*>(written), tensors, pass,
      tensors.written_by(pass), seed, sums);
  check(cudaGetLastError());
}

}  // namespace

ImageTensor image_tensor(std::int64_t images, std::int64_t channels, std::int64_t rows, std::int64_t columns,
                         ImageLayout layout) {
  const bool last = layout == ImageLayout::kNhwc;
  return {
      {images, channels, rows, columns},
      {channels * rows * columns, last ? 1 : rows * columns, last ? columns * channels : columns, last ? channels : 1}};
}

ConvolutionTensors::ConvolutionTensors(const ConvolutionShape& of, ImageLayout layout)
    : shape(of),
      images(image_tensor(of.images, of.channels, of.height, of.width, layout)),
      filters(image_tensor(of.filters, of.channels, of.side, of.side, layout)),
      results(image_tensor(of.images, of.filters, of.out_height(), of.out_width(), layout)) {}

const ImageTensor& ConvolutionTensors::written_by(ConvolutionPass pass) const {
  if (pass == ConvolutionPass::kForward) return results;
  return pass == ConvolutionPass::kDataGradient ? images : filters;
}

void fill_images(void* data, ElementType type, const ImageTensor& tensor, std::uint64_t seed, cudaStream_t stream) {
  if (type == ElementType::kFp16) return launch_fill<__half>(data, tensor, seed, stream);
  if (type == ElementType::kBf16) return launch_fill<__nv_bfloat16>(data, tensor, seed, stream);
  throw std::invalid_argument("fill_images: fp16 and bf16 alone");
}

double ConvolutionCheck::error(const ConvolutionBuffers& buffers, ElementType type, const ConvolutionTensors& tensors,
                               ConvolutionPass pass, std::uint64_t seed, cudaStream_t stream) const {
  check(cudaMemsetAsync(sums_.data(), 0, sums_.bytes(), stream));
  if (type == ElementType::kFp16) {
    launch_error<__half>(buffers, tensors, pass, seed, sums_.data(), stream);
  } else if (type == ElementType::kBf16) {
    launch_error<__nv_bfloat16>(buffers, tensors, pass, seed, sums_.data(), stream);
  } else {
    throw std::invalid_argument("ConvolutionCheck: fp16 and bf16 alone");
  }
  std::array<double, 2> sums{};
  check(cudaMemcpyAsync(sums.data(), sums_.data(), sums_.bytes(), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  return std::sqrt(sums[0] / sums[1]);
}

}  // namespace gpulift
