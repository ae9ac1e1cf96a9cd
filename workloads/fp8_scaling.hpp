#pragma once
// Where the scales of fp8 products come from, and the operands that are cast by scales of their own.

#include <cstdint>
#include <memory>
#include <string>

#include "core/cuda/device.hpp"
#include "kernels/matmul_data.hpp"
#include "workloads/matmul_type.hpp"

namespace gpulift {

class LtOperation;
class MatmulOperand;

/// Where the scales of fp8 operands come from.
enum class Fp8Scaling {
  kGiven,  // known beforehand, one per operand, which is stored as fp8
  // Taken of bf16 operands and those cast, in each product:
  kTensor,  // one per operand
  kRow,     // one per row of A and of B
  kBlock,   // one per 128 x 128 of A, the weights, and per 128 terms of a row of B, the activations
  kMxfp8,   // one of 8 bits per 32 terms
  kNvfp4,   // of 4-bit operands, one of 8 bits per 16 terms
};

/// Why a device of this architecture cannot multiply so; empty if it can.
std::string why_scaling_unsupported(Fp8Scaling scaling, int architecture);

/// Lies as bf16, and each product finds its scales and casts it to fp8. Throws NotSupported where the device cannot.
std::unique_ptr<MatmulOperand> make_cast_operand(Device& device, Fp8Scaling scaling, MatmulSide side,
                                                 const NormalMatrix& source, std::int64_t rows, std::int64_t sets);

/// Tells a product of both operands where their scales lie and what shares one.
void use_scales(LtOperation& operation, Fp8Scaling scaling, const MatmulOperand& a, const MatmulOperand& b);

}  // namespace gpulift
