#pragma once
// The softmax of causal attention and its gradient: row i of a square matrix sees its elements 0 to i alone.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/matmul_data.hpp"

namespace gpulift {

/// How many columns causal_softmax() takes at most.
inline constexpr std::int64_t kMostSoftmaxColumns = 16384;

/// Replaces each of `matrices` square matrices of scores by softmax(scale * scores), and what a row does not see by 0.
/// kBf16 and kFp64, computed in FP32; `columns` is a multiple of 8; std::invalid_argument otherwise.
void causal_softmax(void* scores, ElementType type, std::int64_t matrices, std::int64_t columns, float scale,
                    cudaStream_t stream);

/// Replaces the gradients of the softmax's results by those of the scores. `results` are what causal_softmax() made.
void causal_softmax_gradient(const void* results, void* gradients, ElementType type, std::int64_t matrices,
                             std::int64_t columns, float scale, cudaStream_t stream);

}  // namespace gpulift
