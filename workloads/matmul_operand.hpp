#pragma once
// Operands of matrix products: rows of normals that lie as a product takes them, or that each product brings there.

#include <driver_types.h>

#include <cstdint>
#include <memory>

#include "core/cuda/device.hpp"
#include "kernels/matmul_data.hpp"
#include "workloads/matrix_set.hpp"

namespace gpulift {

/// In sets that products take in turn.
class MatmulOperand {
 public:
  virtual ~MatmulOperand() = default;
  /// What a product of the set reads.
  virtual void* at(std::int64_t set) const = 0;
  /// Enqueues what such a product begins with. Never synchronises, never allocates.
  virtual void prepare(std::int64_t /*set*/, cudaStream_t) const {}
  /// Overwrites in all sets what prepare() makes with bytes that are NaN where a format has such.
  virtual void poison(cudaStream_t) const {}
  /// What the library multiplies the numbers by, in device memory; null where there is nothing.
  virtual const void* scales() const { return nullptr; }
  /// And the product by, of NVFP4 alone.
  virtual const float* tensor_scale() const { return nullptr; }
};

/// Rows of a source, zeros behind each up to `width` elements, and rows of zeros behind them up to `total`.
struct StoredRows {
  std::int64_t rows;
  std::int64_t total;
  std::int64_t width;
};

/// Into every set. Returns when they are there.
void fill_rows(const MatrixSet& matrix, NormalMatrix source, const StoredRows& stored);

/// Lies in the format, as the originals times `factor`, of which fp8 has the inverse for its scale.
std::unique_ptr<MatmulOperand> make_given_operand(Device& device, ElementType type, const NormalMatrix& source,
                                                  const StoredRows& stored, float factor, std::int64_t sets);

/// Lies so without the zeros, and each product copies it into rows that have them.
std::unique_ptr<MatmulOperand> make_copied_operand(Device& device, ElementType type, const NormalMatrix& source,
                                                   const StoredRows& stored, float factor, std::int64_t sets);

}  // namespace gpulift
