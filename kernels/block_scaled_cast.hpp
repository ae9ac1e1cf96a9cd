#pragma once
// From BF16 to formats with a scale for each few numbers of a row, which Blackwell multiplies: MXFP8 (E4M3, a power of
// two for each 32 of them) and NVFP4 (E2M1, an E4M3 for each 16 and a float for all). Casts run on any architecture.

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/check.hpp"

namespace gpulift {

enum class BlockFormat { kMxfp8, kNvfp4 };

/// Bytes of so many numbers.
std::int64_t block_scaled_bytes(BlockFormat format, std::int64_t numbers);
/// Bytes of a matrix's scales. Throws std::invalid_argument unless both sides are multiples of 128.
std::size_t block_scales(BlockFormat format, std::int64_t rows, std::int64_t columns);
/// Floats: the scale of all, and what it is found from behind it. None of MXFP8.
std::size_t tensor_scales(BlockFormat format);

struct BlockScaled {
  std::uint8_t* numbers;  // of NVFP4 two in a byte
  std::uint8_t* scales;   // as block_scale_place() has them
  float* tensor_scale;    // of NVFP4
};

/// `from` and the numbers are aligned to 16 bytes. Throws std::invalid_argument unless both sides are multiples of 128.
void cast_to_blocks(BlockFormat format, const __nv_bfloat16* from, std::int64_t rows, std::int64_t columns,
                    const BlockScaled& to, cudaStream_t stream);

/// What a product of two matrices in NVFP4 is multiplied by.
void multiply_tensor_scales(const float* a, const float* b, float* product, cudaStream_t stream);

/// What a cast matrix says, for checks.
void restore_from_blocks(BlockFormat format, const BlockScaled& from, std::int64_t rows, std::int64_t columns,
                         float* to, cudaStream_t stream);

}  // namespace gpulift
