#include "workloads/matmul_operand.hpp"

#include <optional>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"

namespace gpulift {
namespace {

class GivenOperand : public MatmulOperand {
 public:
  GivenOperand(Device& device, ElementType type, NormalMatrix source, const StoredRows& stored, float factor,
               std::int64_t sets)
      : stored_(device, type, stored.total * stored.width, sets) {
    source.scale *= factor;
    fill_rows(stored_, source, stored);
    if (type != ElementType::kFp8E4m3) return;
    const float scale = 1 / factor;
    scale_.emplace(device, 1);
    check(cudaMemcpy(scale_->data(), &scale, sizeof scale, cudaMemcpyHostToDevice));
    // A copy from pageable memory may return before it arrives, and our streams do not wait for the default stream.
    check(cudaStreamSynchronize(nullptr));
  }

  void* at(std::int64_t set) const override { return stored_.at(set); }
  const void* scales() const override { return scale_ ? scale_->data() : nullptr; }

 private:
  MatrixSet stored_;
  std::optional<DeviceBuffer<float>> scale_;
};

class CopiedOperand final : public GivenOperand {
 public:
  CopiedOperand(Device& device, ElementType type, NormalMatrix source, const StoredRows& stored, float factor,
                std::int64_t sets)
      : GivenOperand(device, type, source, stored, factor, sets),
        rows_(static_cast<std::size_t>(stored.rows)),
        width_bytes_(static_cast<std::size_t>(source.columns * element_bytes(type))),
        stored_width_bytes_(static_cast<std::size_t>(stored.width * element_bytes(type))),
        originals_(device, type, stored.rows * source.columns, sets) {
    source.scale *= factor;
    fill_rows(originals_, source, {stored.rows, stored.rows, source.columns});
  }

  void prepare(std::int64_t set, cudaStream_t stream) const override {
    check(cudaMemcpy2DAsync(at(set), stored_width_bytes_, originals_.at(set), width_bytes_, width_bytes_, rows_,
                            cudaMemcpyDeviceToDevice, stream));
  }
  void poison(cudaStream_t stream) const override {  // the zeros beside and behind the rows stay
    for (std::int64_t set = 0; set < originals_.sets(); ++set) {
      check(cudaMemset2DAsync(at(set), stored_width_bytes_, 0xFF, width_bytes_, rows_, stream));
    }
  }

 private:
  std::size_t rows_;
  std::size_t width_bytes_;
  std::size_t stored_width_bytes_;
  MatrixSet originals_;
};

}  // namespace

void fill_rows(const MatrixSet& matrix, NormalMatrix source, const StoredRows& stored) {
  check(cudaMemsetAsync(matrix.at(0), 0, matrix.bytes(), nullptr));
  source.padding = stored.width - source.columns;
  fill_normals(matrix.at(0), matrix.type(), source, {0, stored.rows, 1}, matrix.sets(), matrix.stride(), nullptr);
  check(cudaStreamSynchronize(nullptr));  // our streams do not wait for it
}

std::unique_ptr<MatmulOperand> make_given_operand(Device& device, ElementType type, const NormalMatrix& source,
                                                  const StoredRows& stored, float factor, std::int64_t sets) {
  return std::make_unique<GivenOperand>(device, type, source, stored, factor, sets);
}

std::unique_ptr<MatmulOperand> make_copied_operand(Device& device, ElementType type, const NormalMatrix& source,
                                                   const StoredRows& stored, float factor, std::int64_t sets) {
  return std::make_unique<CopiedOperand>(device, type, source, stored, factor, sets);
}

}  // namespace gpulift
