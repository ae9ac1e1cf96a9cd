#pragma once
// Operands of a matrix product and the error of its result, on the device. An element's value depends on the seed and
// its place alone, so that every number format rounds the same originals and a reference can make any rows afresh.

#include <cstdint>

#include "core/cuda/check.hpp"

namespace gpulift {

enum class ElementType { kFp64, kFp32, kFp16, kBf16, kFp8E4m3, kFp4E2m1, kInt8, kInt32 };

/// Throws std::invalid_argument for kFp4E2m1, of which two share one.
std::int64_t element_bytes(ElementType type);

/// Row numbers of a larger matrix: one drawn from each stripe of `stripe` rows, so that a sample meets every part of
/// the matrix. A stripe of 1 gives consecutive rows.
struct Rows {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t stripe = 1;
};

/// Which elements of a matrix are zeros, whatever was drawn for them.
enum class Zeros {
  kNone,
  kTwoOfFour,  // two of each four neighbours in a row
  kHalf,       // each with a chance of a half
};

/// Standard normals in rows of `columns` elements, before they are rounded to a format.
struct NormalMatrix {
  std::uint64_t seed = 0;
  std::int64_t columns = 0;
  float scale = 1;           // multiplies the originals; a power of two changes no digit of them
  bool integers = false;     // then rounded to integers and clamped to +-127
  std::int64_t padding = 0;  // zeros behind each row, where it is written
  Zeros zeros = Zeros::kNone;
  bool mask = false;  // ones in place of what was drawn: where its zeros are, and nothing else
};

/// Writes `rows` of `source`, rounded to nearest in `type`, to `data`, and the same again `copies` times at a distance
/// of `copy_stride` elements. Every type but kFp4E2m1 and kInt32.
void fill_normals(void* data, ElementType type, const NormalMatrix& source, const Rows& rows, std::int64_t copies,
                  std::int64_t copy_stride, cudaStream_t stream);

/// A part of a product, stored by columns.
struct ProductPart {
  const void* data = nullptr;
  ElementType type = ElementType::kFp32;
  std::int64_t leading_dimension = 0;  // elements from one column to the next
  Rows rows;                           // those that the reference holds
  std::int64_t columns = 0;
};

/// Adds the squared norm of (product - reference) to sums[0] and that of the reference to sums[1]. `reference` holds
/// product.rows.count consecutive rows by product.columns columns, stored by columns.
void add_squared_error(const ProductPart& product, const double* reference, double* sums, cudaStream_t stream);

}  // namespace gpulift
