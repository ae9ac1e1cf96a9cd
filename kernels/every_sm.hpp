#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gpulift {

/// Entries of `visits`: more than any GPU has multiprocessors, whose numbers (%smid) may have gaps.
inline constexpr std::size_t kMultiprocessorIds = 1024;

/// Every block does the same work, which depends on `seed` and `rounds` alone: rounds of integer multiplications, FP32
/// multiply-adds and tensor core products that feed each other, so that one wrong bit changes all that follows. Writes
/// a hash of it to hashes[block]: all are equal unless some multiprocessor computed something else. Adds 1 to
/// visits[number of the multiprocessor] for each block.
void run_on_every_sm(std::uint64_t seed, int rounds, unsigned blocks, std::uint32_t* hashes, std::uint32_t* visits,
                     cudaStream_t stream);

/// Arithmetic operations of one block, integer ones of 64 bits included.
double every_sm_operations(int rounds);

}  // namespace gpulift
