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

/// Each byte of scales before a step that is checked: 3.4e38. Where nothing looked for the largest numbers, NaN in
/// their place would not be larger than zero, and so make a scale of 1.
inline constexpr int kHugeFloats = 0x7F;

/// How many floats the scales take, and what they are found from behind them.
std::size_t fp8_scales(ScaledPart part, std::int64_t rows, std::int64_t columns);

/// All data aligned to 16 bytes. Throws std::invalid_argument unless the columns are a multiple of 8, for kVector of
/// 128, for kTile both sides of 128.
void cast_to_fp8(ScaledPart part, const __nv_bfloat16* from, std::int64_t rows, std::int64_t columns, __nv_fp8_e4m3* to,
                 float* scales, cudaStream_t stream);

/// A matrix in FP8, and floats of its scales.
struct Fp8Copy {
  __nv_fp8_e4m3* numbers;
  float* scales;
};

/// Of one reading the matrix and its transpose, which products of the backward pass want where they take operands
/// along the sum alone, as Hopper's do. By kTensor, one scale for both; or by kRow, each copy by the scales of its own
/// rows, for which the data are read once more ahead. `by_columns` has `columns` rows. Scales are as many as
/// fp8_scales() says of each copy's sides. Throws std::invalid_argument for other parts and unless both sides are
/// multiples of 128.
void cast_to_fp8_both_ways(ScaledPart part, const __nv_bfloat16* from, std::int64_t rows, std::int64_t columns,
                           const Fp8Copy& by_rows, const Fp8Copy& by_columns, cudaStream_t stream);

/// What a copy of so many rows and columns says, for checks. `transposed`: written by columns.
void restore_from_fp8(ScaledPart part, const Fp8Copy& from, std::int64_t rows, std::int64_t columns, bool transposed,
                      float* to, cudaStream_t stream);

}  // namespace gpulift
