#pragma once
// Causal self-attention and its gradients: the operands, the form that takes one operation after the other, and the
// error of either form's results.

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "core/cuda/device.hpp"
#include "kernels/matmul_data.hpp"
#include "workloads/batched_product.hpp"

namespace gpulift {

/// Of each head a matrix of `tokens` rows of `width` elements; the heads lie behind each other.
struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t tokens = 1;
  std::int64_t width = 1;

  std::int64_t matrices() const { return batch * heads; }
  std::int64_t elements() const { return matrices() * tokens * width; }
  std::int64_t scores() const { return matrices() * tokens * tokens; }
  /// Two products forward and four backward, of the half that the mask leaves.
  double flops() const { return 6.0 * static_cast<double>(scores() * width); }
  /// By which scores are multiplied: 1 / sqrt(width).
  float scale() const;
};

/// Four tensors of a shape: queries, keys, values and the gradient of the result; or the result and the gradients of
/// queries, keys and values.
class AttentionTensors {
 public:
  AttentionTensors(Device& device, ElementType type, const AttentionShape& shape)
      : bytes_(static_cast<std::size_t>(shape.elements() * element_bytes(type))), data_(device, 4 * bytes_) {}
  std::byte* at(int tensor) const { return data_.data() + static_cast<std::size_t>(tensor) * bytes_; }
  void fill_with_nan(cudaStream_t stream) const;

 private:
  std::size_t bytes_;
  DeviceBuffer<std::byte> data_;
};

/// Fills operands with standard normals rounded to the type: of all matrices, or of the one with this number alone
/// where `operands` has room for one.
void fill_attention(const AttentionTensors& operands, ElementType type, const AttentionShape& shape, std::uint64_t seed,
                    std::int64_t first_matrix, cudaStream_t stream);

/// Product, softmax, product; then the gradients, for which it keeps all shares. kBf16 and kFp64.
class SeparateAttention {
 public:
  /// Throws NotSupported where cuBLASLt cannot multiply the type.
  SeparateAttention(Device& device, ElementType type, const AttentionShape& shape);

  /// Never synchronises, never allocates.
  void enqueue(const AttentionTensors& operands, const AttentionTensors& results, cudaStream_t stream) const;

 private:
  ElementType type_;
  AttentionShape shape_;
  BatchedProduct tokens_by_tokens_;  // scores of queries and keys
  BatchedProduct shares_by_rows_;    // results of shares and values
  BatchedProduct columns_by_rows_;   // gradients, summed over the queries
  DeviceBuffer<std::byte> shares_;
  DeviceBuffer<std::byte> gradients_;
  DeviceBuffer<std::byte> workspace_;
};

/// The largest relative Frobenius error that the four results may have in BF16.
inline constexpr double kAttentionTolerance = 0.02;

/// The largest of the four relative Frobenius errors of one matrix, drawn by the seed, against the same in FP64 from
/// operands before they were rounded. NaN where a result is NaN. Takes device memory for the reference; synchronises.
double attention_error(Device& device, const AttentionTensors& results, ElementType type, const AttentionShape& shape,
                       std::uint64_t seed, cudaStream_t stream);

}  // namespace gpulift
