#pragma once
// Products of BF16 matrices of which A has two zeros of each four neighbours along k, by cuSPARSELt.

#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/device.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {

/// Why a device of this architecture cannot multiply so; empty if it can.
std::string why_two_four_unsupported(int architecture);

/// "0.8.0"
std::string cusparselt_version();

/// How A gets into the compressed form that is multiplied.
enum class TwoFourWeights {
  kCompressedOnce,
  kCompressedEachStep,  // by the library, as changed weights have to be
  kGatheredEachStep,    // A is dense, and changes under a mask that stays: what the mask keeps is gathered
};

/// The same operands as those of a Matmul with Zeros::kTwoOfFour, with A compressed. Buffers are rotated alike.
class TwoFourMatmul {
 public:
  /// Fills the operands, compresses A and lets the library search its algorithms. Throws NotSupported when it has none.
  TwoFourMatmul(Device& device, TwoFourWeights weights, const MatmulShape& shape, std::uint64_t seed);
  ~TwoFourMatmul();
  TwoFourMatmul(const TwoFourMatmul&) = delete;
  TwoFourMatmul& operator=(const TwoFourMatmul&) = delete;

  /// What the search chose, for people.
  std::string description() const;

  /// One product in the next set of buffers, and ahead of it what A takes. Never synchronises.
  void enqueue(cudaStream_t stream);
  /// Overwrites all results, and of A's compressed forms what a step makes.
  void poison(cudaStream_t stream);
  /// Relative Frobenius error of 64 rows of the latest result against the FP64 product, see matmul_tolerance().
  double error(cudaStream_t stream);
  /// The values in the compressed form that was multiplied last, as bits: m rows of k / 2. Synchronises.
  std::vector<std::uint16_t> compressed_values(cudaStream_t stream) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulift
