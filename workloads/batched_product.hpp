#pragma once
// Products of many small matrices by cuBLASLt, in one call.

#include <driver_types.h>

#include <cstdint>
#include <memory>

#include "kernels/matmul_data.hpp"

namespace gpulift {

/// D = op(A) op(B), m x k times k x n, stored by columns, none padded; `count` of each lie behind each other.
struct BatchedShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t count = 1;
};

/// kBf16, accumulated in FP32, or kFp64; by the library's first choice of algorithm.
class BatchedProduct {
 public:
  /// Throws NotSupported when the library has none.
  BatchedProduct(ElementType type, const BatchedShape& shape);
  ~BatchedProduct();
  BatchedProduct(BatchedProduct&&) noexcept;

  /// `workspace` has kMatmulWorkspaceBytes of lt_operation.hpp. Never synchronises, never allocates.
  void enqueue(const void* a, const void* b, void* d, void* workspace, cudaStream_t stream) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulift
