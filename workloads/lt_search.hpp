#pragma once
// Which of cuBLASLt's algorithms is the fastest for a product. For the matrix products of this folder.

#include <cublasLt.h>

#include <functional>
#include <span>
#include <string>

#include "workloads/matmul_plan.hpp"

namespace gpulift {

/// Enqueues one product by the algorithm, into the next set of buffers.
using TryLtAlgorithm = std::function<cublasStatus_t(const cublasLtMatmulAlgo_t&, cudaStream_t)>;

struct LtFound {
  cublasLtMatmulAlgo_t algorithm;
  double time_s;
  std::string description;
};

/// Times the candidates, favourites first, as the search says. Throws NotSupported where none runs.
LtFound search_lt(std::span<const cublasLtMatmulHeuristicResult_t> candidates, const MatmulSearch& search,
                  const TryLtAlgorithm& enqueue);

/// Time of one product in a window of about `window_s` of back-to-back products, after `rest_s` of idleness.
double lt_time_s(const cublasLtMatmulAlgo_t& algorithm, double window_s, double rest_s, const TryLtAlgorithm& enqueue);

}  // namespace gpulift
