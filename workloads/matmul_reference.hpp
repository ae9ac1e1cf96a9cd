#pragma once
// What results of matrix products are held against.

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "kernels/matmul_data.hpp"

namespace gpulift {

/// FP64 products of normals before they were rounded, one after another, and how far results are from them.
class MatmulReference {
 public:
  /// Room for products of up to `rows` by `columns`, of sums of `k` terms.
  MatmulReference(Device& device, std::int64_t rows, std::int64_t columns, std::int64_t k);

  /// These rows of A times these of B; stored by columns, and lies there until the next product.
  double* multiply(const NormalMatrix& a, const Rows& rows, const NormalMatrix& b, const Rows& columns,
                   cudaStream_t stream);
  /// Adds how far results are from the latest product.
  void compare(const ProductPart& results, cudaStream_t stream);
  /// Relative Frobenius error of all results that were compared. Synchronises.
  double error(cudaStream_t stream) const;

 private:
  DeviceBuffer<double> a_;
  DeviceBuffer<double> b_;
  DeviceBuffer<double> product_;
  DeviceBuffer<double> sums_;
  DeviceBuffer<std::byte> workspace_;
};

}  // namespace gpulift
