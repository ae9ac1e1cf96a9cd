#pragma once
// From BF16 to FP8 (e4m3) with scales that are taken of the data: by each the greatest number becomes 448, the largest
// of the format. Scales are what the product has to be multiplied by again, laid out as cuBLASLt reads them.

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/check.hpp"

namespace gpulift {

/// What shares a scale, of a matrix that lies by rows.
enum class ScaledPart {
  kTensor,  // all of it: two passes over the data, the first one for the scale
  kRow,     // each row
  kVector,  // each 128 columns of a row
  kTile,    // each 128 rows by 128 columns
};

/// How many floats the scales take, the pass's own space included.
std::size_t fp8_scales(ScaledPart part, std::int64_t rows, std::int64_t columns);

/// All data aligned to 16 bytes. Throws std::invalid_argument unless the columns are a multiple of 8, for kVector of
/// 128, for kTile both sides of 128.
void cast_to_fp8(ScaledPart part, const __nv_bfloat16* from, std::int64_t rows, std::int64_t columns, __nv_fp8_e4m3* to,
                 float* scales, cudaStream_t stream);

}  // namespace gpulift
