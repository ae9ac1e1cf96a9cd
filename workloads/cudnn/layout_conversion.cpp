#include "workloads/cudnn/layout_conversion.hpp"

#include <array>
#include <utility>

#include "workloads/cudnn/check.hpp"

namespace gpulift {

CudnnLayoutConversion::CudnnLayoutConversion(CudnnLibrary library, const ImageTensor& from, const ImageTensor& to)
    : library_(std::move(library)), from_(describe(from)), to_(describe(to)) {}

CudnnLayoutConversion::Descriptor CudnnLayoutConversion::describe(const ImageTensor& tensor) {
  cudnnTensorDescriptor_t made = nullptr;
  check(cudnnCreateTensorDescriptor(&made));
  Descriptor owned(made, [](cudnnTensorDescriptor_t held) { static_cast<void>(cudnnDestroyTensorDescriptor(held)); });
  std::array<int, 8> numbers{};
  for (int i = 0; i < 4; ++i) {
    numbers.at(i) = static_cast<int>(tensor.sides[i]);
    numbers.at(4 + i) = static_cast<int>(tensor.strides[i]);
  }
  const auto& [n, c, h, w, n_stride, c_stride, h_stride, w_stride] = numbers;
  check(cudnnSetTensor4dDescriptorEx(made, CUDNN_DATA_HALF, n, c, h, w, n_stride, c_stride, h_stride, w_stride));
  return owned;
}

void CudnnLayoutConversion::enqueue(const void* from, void* to, cudaStream_t stream) const {
  const float one = 1;
  const float zero = 0;
  check(cudnnSetStream(library_.get(), stream));
  check(cudnnTransformTensor(library_.get(), &one, from_.get(), from, &zero, to_.get(), to));
}

}  // namespace gpulift
