#pragma once
// What becomes of a product of bf16 where bias and GELU belong to it. For the matrix products of this folder.

#include <cuda_bf16.h>
#include <driver_types.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "core/cuda/device.hpp"
#include "kernels/matmul_data.hpp"
#include "workloads/lt_operation.hpp"
#include "workloads/matmul.hpp"
#include "workloads/matrix_set.hpp"

namespace gpulift {

/// A bias for each row, GELU behind it, and what is kept beside the results.
class BiasGeluEpilogue {
 public:
  /// Of products of this shape by the operation, which is told.
  BiasGeluEpilogue(Device& device, MatmulEpilogue way, const MatmulShape& shape, std::uint64_t seed, std::int64_t sets,
                   LtOperation& operation);

  /// Where the next product by the operation writes, whose results are to be at `result`.
  void* product_of(std::int64_t set, void* result, LtOperation& operation) const;
  /// Enqueues what a kernel of its own does behind the product.
  void finish(std::int64_t set, void* result, cudaStream_t stream) const;
  void poison(cudaStream_t stream) const;
  /// Makes activations of these rows and columns of an exact product. Compares what is kept while it stands there.
  void apply_to(double* expected, const Rows& rows, std::int64_t columns,
                const std::function<void(const MatrixSet& kept)>& compare, cudaStream_t stream) const;

 private:
  const __nv_bfloat16* bias() const { return static_cast<const __nv_bfloat16*>(bias_.at(0)); }

  MatmulEpilogue way_;
  MatmulShape shape_;
  MatrixSet bias_;
  std::optional<MatrixSet> kept_;  // what GELU was taken of, or the product without its bias
};

}  // namespace gpulift
