#pragma once
// Products of a mixture of experts: the weights of each times the tokens that were sent to it, in BF16, summed in FP32.

#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/cuda/device.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {

struct Experts {
  std::int64_t features = 0;  // rows of an expert's weights
  std::int64_t inputs = 0;
  std::vector<std::int64_t> tokens;  // of each expert
  std::int64_t all_tokens() const;
  std::int64_t most_tokens() const;
  /// Of what was asked, nothing that is padded.
  double flops() const;
};

/// Tokens of each expert, as many for all, or half of all for an eighth of the experts. What does not divide is left
/// out. Throws std::invalid_argument unless the experts are a multiple of 8 and each gets a token.
std::vector<std::int64_t> deal_tokens(std::int64_t experts, std::int64_t tokens, bool evenly);

enum class ExpertCalls {
  kLoop,           // a call per expert, each searched
  kLoopOnStreams,  // the same calls, on 8 streams
  kBatched,        // one strided batch, searched; all experts padded to the tokens of the fullest
  kGrouped,        // one cublasGemmGroupedBatchedEx, whose algorithm the library chooses
};

/// What has to be searched: features x tokens x inputs of each size that is multiplied.
std::vector<MatmulShape> searched_shapes(ExpertCalls calls, const Experts& experts);

class ExpertMatmul {
 public:
  /// Fills the operands. Throws NotSupported when the library has no algorithm.
  ExpertMatmul(Device& device, ExpertCalls calls, const Experts& experts, std::uint64_t seed);
  ~ExpertMatmul();
  ExpertMatmul(const ExpertMatmul&) = delete;
  ExpertMatmul& operator=(const ExpertMatmul&) = delete;

  /// Of one of the shapes that are searched.
  MatmulPlan search(const MatmulShape& shape, const MatmulSearch& search);
  void use(const MatmulPlan& plan);

  /// The products of all experts. Never synchronises.
  void enqueue(cudaStream_t stream);
  void poison(cudaStream_t stream);
  /// Relative Frobenius error against FP64, see matmul_tolerance(), of 64 rows of each expert's results.
  double error(cudaStream_t stream);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulift
