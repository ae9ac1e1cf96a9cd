#pragma once

#include <cuda.h>

#include <cstdint>

namespace gpulift {

/// How TMA finds boxes of `box_rows` rows of 64 elements in a BF16 matrix by rows. In shared memory they are swizzled;
/// what lies outside of the matrix is read as zeros and not written. `columns` is a multiple of 8, `box_rows` at most
/// 256. Throws NotSupported where the driver does not know TMA.
CUtensorMap make_tensor_map(const void* matrix, std::int64_t rows, std::int64_t columns, int box_rows);

}  // namespace gpulift
