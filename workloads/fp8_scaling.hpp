#pragma once
// Where the scales of fp8 and fp4 products come from, and the operands that are cast by scales of their own.

#include <cstdint>
#include <memory>
#include <string>

#include "core/cuda/buffer.hpp"
#include "core/cuda/device.hpp"
#include "kernels/matmul_data.hpp"
#include "workloads/matmul_type.hpp"

namespace gpulift {

class LtOperation;
class MatmulOperand;

/// Where the scales of fp8 and fp4 operands come from.
enum class Fp8Scaling {
  kGiven,  // known beforehand, one per operand, which is stored as fp8
  // Taken of bf16 operands and those cast, in each product:
  kTensor,  // one per operand
  kRow,     // one per row of A and of B
  kBlock,   // one per 128 x 128 of A, the weights, and per 128 terms of a row of B, the activations
  kMxfp8,   // one of 8 bits per 32 terms
  kNvfp4,   // of fp4, one of 8 bits per 16 terms, and one per operand
};

/// Why a device of this architecture cannot multiply so; empty if it can.
std::string why_scaling_unsupported(Fp8Scaling scaling, int architecture);

/// Lies as bf16, and each product finds its scales and casts it. Throws NotSupported where the device cannot multiply
/// it.
std::unique_ptr<MatmulOperand> make_cast_operand(Device& device, Fp8Scaling scaling, MatmulSide side,
                                                 const NormalMatrix& source, std::int64_t rows, std::int64_t sets);

/// Tells a product of both operands where their scales lie and what shares one.
void use_scales(LtOperation& operation, Fp8Scaling scaling, const MatmulOperand& a, const MatmulOperand& b);

/// Both operands' own scales, by which a product of NVFP4 is multiplied where it lies: they are found on the device.
class ProductScale {
 public:
  /// Both must outlive it, as it the operation.
  ProductScale(Device& device, LtOperation& operation, const MatmulOperand& a, const MatmulOperand& b);
  /// Behind both operands' casts.
  void prepare(cudaStream_t stream) const;
  void poison(cudaStream_t stream) const;

 private:
  const float* a_;
  const float* b_;
  DeviceBuffer<float> factor_and_zero_;
};

}  // namespace gpulift
