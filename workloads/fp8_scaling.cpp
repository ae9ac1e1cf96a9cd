#include "workloads/fp8_scaling.hpp"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <stdexcept>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/error.hpp"
#include "kernels/fp8_cast.hpp"
#include "workloads/lt_operation.hpp"
#include "workloads/matmul_operand.hpp"
#include "workloads/matrix_set.hpp"

namespace gpulift {
namespace {

/// What a row of A and one of B share scales by.
struct ScaledParts {
  ScaledPart a;
  ScaledPart b;
  cublasLtMatmulMatrixScale_t a_mode;
  cublasLtMatmulMatrixScale_t b_mode;
  bool fast_sums;  // the library has no fast sums of blocks
};

ScaledParts parts_of(Fp8Scaling scaling) {
  if (scaling == Fp8Scaling::kGiven || scaling == Fp8Scaling::kTensor) {
    return {ScaledPart::kTensor, ScaledPart::kTensor, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
            CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, true};
  }
  if (scaling == Fp8Scaling::kRow) {
    return {ScaledPart::kRow, ScaledPart::kRow, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
            CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, true};
  }
  return {ScaledPart::kTile, ScaledPart::kVector, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
          CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, false};
}

class CastOperand final : public MatmulOperand {
 public:
  CastOperand(Device& device, ScaledPart part, const NormalMatrix& source, std::int64_t rows, std::int64_t sets)
      : part_(part),
        rows_(rows),
        columns_(source.columns),
        originals_(device, ElementType::kBf16, rows * source.columns, sets),
        cast_(device, ElementType::kFp8E4m3, rows * source.columns, sets),
        scales_(device, fp8_scales(part, rows, source.columns)) {
    fill_rows(originals_, source, {rows, rows, source.columns});
    check(cudaMemsetAsync(scales_.data(), 0, scales_.bytes(), nullptr));
    check(cudaStreamSynchronize(nullptr));  // our streams do not wait for it
  }

  void* at(std::int64_t set) const override { return cast_.at(set); }
  void prepare(std::int64_t set, cudaStream_t stream) const override {
    cast_to_fp8(part_, static_cast<const __nv_bfloat16*>(originals_.at(set)), rows_, columns_,
                static_cast<__nv_fp8_e4m3*>(cast_.at(set)), scales_.data(), stream);
  }
  const float* scales() const override { return scales_.data(); }

 private:
  ScaledPart part_;
  std::int64_t rows_;
  std::int64_t columns_;
  MatrixSet originals_;
  MatrixSet cast_;
  DeviceBuffer<float> scales_;
};

}  // namespace

std::string why_scaling_unsupported(Fp8Scaling scaling, int architecture) {
  constexpr int kHopper = 90;
  constexpr int kBlackwell = 100;
  switch (scaling) {
    case Fp8Scaling::kGiven:
    case Fp8Scaling::kTensor:
      return why_matmul_unsupported(MatmulType::kFp8, architecture);
    case Fp8Scaling::kRow:
    case Fp8Scaling::kBlock:
      if (architecture == kHopper) return {};
      return "cuBLASLt scales rows and blocks of 128 on compute capability 9.0 alone; this device has " +
             compute_capability(architecture);
    case Fp8Scaling::kMxfp8:
    case Fp8Scaling::kNvfp4:
      if (architecture >= kBlackwell) return "no cast to this format has been written yet";
      return "formats with a scale per 16 or 32 numbers need compute capability 10.0 or later; this device has " +
             compute_capability(architecture);
  }
  throw std::invalid_argument("no such scaling");
}

std::unique_ptr<MatmulOperand> make_cast_operand(Device& device, Fp8Scaling scaling, MatmulSide side,
                                                 const NormalMatrix& source, std::int64_t rows, std::int64_t sets) {
  const std::string reason = why_scaling_unsupported(scaling, device.architecture());
  if (!reason.empty()) throw NotSupported(reason);
  const ScaledParts parts = parts_of(scaling);
  return std::make_unique<CastOperand>(device, side == MatmulSide::kA ? parts.a : parts.b, source, rows, sets);
}

void use_scales(LtOperation& operation, Fp8Scaling scaling, const MatmulOperand& a, const MatmulOperand& b) {
  const ScaledParts parts = parts_of(scaling);
  operation.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, parts.a_mode);
  operation.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, parts.b_mode);
  operation.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a.scales());
  operation.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, b.scales());
  operation.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(parts.fast_sums));
}

}  // namespace gpulift
