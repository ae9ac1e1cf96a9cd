#include "workloads/fp8_scaling.hpp"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <optional>
#include <stdexcept>

#include "core/cuda/check.hpp"
#include "core/cuda/error.hpp"
#include "kernels/block_scaled_cast.hpp"
#include "kernels/fp8_cast.hpp"
#include "workloads/lt_operation.hpp"
#include "workloads/matmul_operand.hpp"
#include "workloads/matrix_set.hpp"

namespace gpulift {
namespace {

/// How the library reads the scales of A and of B.
struct ScaleModes {
  cublasLtMatmulMatrixScale_t a;
  cublasLtMatmulMatrixScale_t b;
  bool fast_sums;  // the library has no fast sums of blocks
};

ScaleModes modes_of(Fp8Scaling scaling) {
  switch (scaling) {
    case Fp8Scaling::kGiven:
    case Fp8Scaling::kTensor:
      return {CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, true};
    case Fp8Scaling::kRow:
      return {CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, true};
    case Fp8Scaling::kBlock:
      return {CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, false};
    case Fp8Scaling::kMxfp8:
      return {CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, false};
    case Fp8Scaling::kNvfp4:
      return {CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, false};
  }
  throw std::invalid_argument("no such scaling");
}

/// What of an operand shares a scale of 32 bits.
ScaledPart part_of(Fp8Scaling scaling, MatmulSide side) {
  if (scaling == Fp8Scaling::kTensor) return ScaledPart::kTensor;
  if (scaling == Fp8Scaling::kRow) return ScaledPart::kRow;
  return side == MatmulSide::kA ? ScaledPart::kTile : ScaledPart::kVector;
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
  void poison(cudaStream_t stream) const override {
    check(cudaMemsetAsync(cast_.at(0), 0xFF, cast_.bytes(), stream));  // NaN
    // Those of tiles and vectors have padding, which the library may read and no cast writes again.
    if (part_ == ScaledPart::kTile || part_ == ScaledPart::kVector) return;
    check(cudaMemsetAsync(scales_.data(), kHugeFloats, scales_.bytes(), stream));
  }
  const void* scales() const override { return scales_.data(); }

 private:
  ScaledPart part_;
  std::int64_t rows_;
  std::int64_t columns_;
  MatrixSet originals_;
  MatrixSet cast_;
  DeviceBuffer<float> scales_;
};

class BlockCastOperand final : public MatmulOperand {
 public:
  BlockCastOperand(Device& device, BlockFormat format, const NormalMatrix& source, std::int64_t rows, std::int64_t sets)
      : format_(format),
        rows_(rows),
        columns_(source.columns),
        originals_(device, ElementType::kBf16, rows * source.columns, sets),
        cast_(device, ElementType::kInt8, block_scaled_bytes(format, rows * source.columns), sets),
        scales_(device, block_scales(format, rows, source.columns)) {
    if (tensor_scales(format) > 0) tensor_scale_.emplace(device, tensor_scales(format));
    fill_rows(originals_, source, {rows, rows, source.columns});
  }

  void* at(std::int64_t set) const override { return cast_.at(set); }
  void prepare(std::int64_t set, cudaStream_t stream) const override {
    cast_to_blocks(format_, static_cast<const __nv_bfloat16*>(originals_.at(set)), rows_, columns_,
                   {static_cast<std::uint8_t*>(cast_.at(set)), scales_.data(), tensor_scale_data()}, stream);
  }
  void poison(cudaStream_t stream) const override {
    check(cudaMemsetAsync(cast_.at(0), 0xFF, cast_.bytes(), stream));
    check(cudaMemsetAsync(scales_.data(), 0xFF, scales_.bytes(), stream));
    if (tensor_scale_) check(cudaMemsetAsync(tensor_scale_->data(), kHugeFloats, tensor_scale_->bytes(), stream));
  }
  const void* scales() const override { return scales_.data(); }
  const float* tensor_scale() const override { return tensor_scale_data(); }

 private:
  float* tensor_scale_data() const { return tensor_scale_ ? tensor_scale_->data() : nullptr; }

  BlockFormat format_;
  std::int64_t rows_;
  std::int64_t columns_;
  MatrixSet originals_;
  MatrixSet cast_;
  DeviceBuffer<std::uint8_t> scales_;
  std::optional<DeviceBuffer<float>> tensor_scale_;
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
      if (architecture >= kBlackwell) return {};
      return "formats with a scale per 16 or 32 numbers need compute capability 10.0 or later; this device has " +
             compute_capability(architecture);
  }
  throw std::invalid_argument("no such scaling");
}

std::unique_ptr<MatmulOperand> make_cast_operand(Device& device, Fp8Scaling scaling, MatmulSide side,
                                                 const NormalMatrix& source, std::int64_t rows, std::int64_t sets) {
  const std::string reason = why_scaling_unsupported(scaling, device.architecture());
  if (!reason.empty()) throw NotSupported(reason);
  if (scaling == Fp8Scaling::kMxfp8 || scaling == Fp8Scaling::kNvfp4) {
    const BlockFormat format = scaling == Fp8Scaling::kMxfp8 ? BlockFormat::kMxfp8 : BlockFormat::kNvfp4;
    return std::make_unique<BlockCastOperand>(device, format, source, rows, sets);
  }
  return std::make_unique<CastOperand>(device, part_of(scaling, side), source, rows, sets);
}

void use_scales(LtOperation& operation, Fp8Scaling scaling, const MatmulOperand& a, const MatmulOperand& b) {
  const ScaleModes modes = modes_of(scaling);
  operation.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, modes.a);
  operation.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, modes.b);
  operation.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a.scales());
  operation.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, b.scales());
  operation.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(modes.fast_sums));
}

ProductScale::ProductScale(Device& device, LtOperation& operation, const MatmulOperand& a, const MatmulOperand& b)
    : a_(a.tensor_scale()), b_(b.tensor_scale()), factor_and_zero_(device, 2) {
  check(cudaMemsetAsync(factor_and_zero_.data(), 0, factor_and_zero_.bytes(), nullptr));
  check(cudaStreamSynchronize(nullptr));  // our streams do not wait for it
  operation.multiply_by(factor_and_zero_.data());
}

void ProductScale::prepare(cudaStream_t stream) const {
  multiply_tensor_scales(a_, b_, factor_and_zero_.data(), stream);
}

void ProductScale::poison(cudaStream_t stream) const {
  check(cudaMemsetAsync(factor_and_zero_.data(), 0xFF, sizeof(float), stream));
}

}  // namespace gpulift
