#pragma once
// A matrix product by cublasGemmEx, which takes no algorithm: what torch.mm calls of two matrices in bf16.

#include <driver_types.h>

#include <cstddef>

#include "core/cuda/buffer.hpp"
#include "core/cuda/device.hpp"
#include "workloads/cublas_handle.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {

class GemmEx {
 public:
  explicit GemmEx(Device& device);

  /// The product of bf16 buffers whose sides are stored so. Never synchronises, never allocates.
  void enqueue(const MatmulShape& stored, const Matmul::Buffers& buffers, cudaStream_t stream) const;

 private:
  DeviceBuffer<std::byte> workspace_;
  UniqueCublas handle_ = make_cublas();
};

}  // namespace gpulift
