#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace gpulift {

/// How many sums ordered_sum() writes for `count` elements.
std::size_t ordered_sum_results(std::size_t count);

/// Sums in FP64 in an order that depends on `count` alone, so that equal data gives equal bits every time: the whole
/// sum to sums[0], and behind it the sum of each stretch of the data. FP64, so that a flipped low bit of one element is
/// not rounded away.
void ordered_sum(const float* data, std::size_t count, double* sums, cudaStream_t stream);

}  // namespace gpulift
