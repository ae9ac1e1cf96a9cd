#pragma once
// Images from NCHW to NHWC by cuDNN.

#include <driver_types.h>

#include <memory>

#include "kernels/convolution_data.hpp"
#include "workloads/cudnn/graph.hpp"

struct cudnnTensorStruct;  // what cuDNN's tensor descriptor points to

namespace gpulift {

/// cudnnTransformTensor() of FP16.
class CudnnLayoutConversion {
 public:
  /// Throws Error where cuDNN takes no such tensor.
  CudnnLayoutConversion(CudnnLibrary library, const ImageTensor& from, const ImageTensor& to);

  /// Never synchronises, never allocates.
  void enqueue(const void* from, void* to, cudaStream_t stream) const;

 private:
  using Descriptor = std::shared_ptr<cudnnTensorStruct>;
  static Descriptor describe(const ImageTensor& tensor);

  CudnnLibrary library_;
  Descriptor from_;
  Descriptor to_;
};

}  // namespace gpulift
