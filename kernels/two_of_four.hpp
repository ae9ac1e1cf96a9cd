#pragma once
// Two of each four neighbours of a BF16 matrix, where a mask says which two. For products of 2:4 sparse weights whose
// mask stays while their values change.

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/check.hpp"

namespace gpulift {

/// Eight neighbours have a byte in which each four of them, the first in the low bits, has the places of its two.
constexpr std::size_t kPlacesOf = 8;

/// The places of what is not zero, which has to be two numbers of each four. Throws std::invalid_argument unless
/// `count` is a multiple of 8 and `mask` is aligned to 16 bytes.
void find_places(const __nv_bfloat16* mask, std::size_t count, std::uint8_t* places, cudaStream_t stream);

/// The numbers at these places, in their order: half of `count`. Throws std::invalid_argument as above, for `values`
/// too.
void gather_places(const __nv_bfloat16* from, std::size_t count, const std::uint8_t* places, __nv_bfloat16* values,
                   cudaStream_t stream);

}  // namespace gpulift
