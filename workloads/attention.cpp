#include "workloads/attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/cuda/check.hpp"
#include "kernels/causal_softmax.hpp"
#include "workloads/lt_operation.hpp"

namespace gpulift {
namespace {

constexpr std::uint64_t kNextSeed = 0xD1B54A32D192ED03ull;

std::size_t score_bytes(ElementType type, const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.scores() * element_bytes(type));
}

}  // namespace

float AttentionShape::scale() const { return 1 / std::sqrt(static_cast<float>(width)); }

void AttentionTensors::fill_with_nan(cudaStream_t stream) const {
  check(cudaMemsetAsync(data_.data(), 0xFF, data_.bytes(), stream));
}

void fill_attention(const AttentionTensors& operands, ElementType type, const AttentionShape& shape, std::uint64_t seed,
                    std::int64_t first_matrix, cudaStream_t stream) {
  const Rows rows{first_matrix * shape.tokens, shape.matrices() * shape.tokens, 1};
  for (int tensor = 0; tensor < 4; ++tensor) {
    const NormalMatrix source{seed + static_cast<std::uint64_t>(tensor) * kNextSeed, shape.width};
    fill_normals(operands.at(tensor), type, source, rows, 1, 0, stream);
  }
}

// Matrices lie by rows, which to cuBLASLt are columns: what it calls D is the transposed result.
SeparateAttention::SeparateAttention(Device& device, ElementType type, const AttentionShape& shape)
    : type_(type),
      shape_(shape),
      tokens_by_tokens_(type, {shape.tokens, shape.tokens, shape.width, true, false, shape.matrices()}),
      shares_by_rows_(type, {shape.width, shape.tokens, shape.tokens, false, false, shape.matrices()}),
      columns_by_rows_(type, {shape.width, shape.tokens, shape.tokens, false, true, shape.matrices()}),
      shares_(device, score_bytes(type, shape)),
      gradients_(device, score_bytes(type, shape)),
      workspace_(device, kMatmulWorkspaceBytes) {}

void SeparateAttention::enqueue(const AttentionTensors& operands, const AttentionTensors& results,
                                cudaStream_t stream) const {
  const auto multiply = [&](const BatchedProduct& product, const std::byte* a, const std::byte* b, std::byte* d) {
    product.enqueue(a, b, d, workspace_.data(), stream);
  };
  const std::byte* const queries = operands.at(0);
  const std::byte* const keys = operands.at(1);
  const std::byte* const values = operands.at(2);
  const std::byte* const gradient = operands.at(3);
  multiply(tokens_by_tokens_, keys, queries, shares_.data());
  causal_softmax(shares_.data(), type_, shape_.matrices(), shape_.tokens, shape_.scale(), stream);
  multiply(shares_by_rows_, values, shares_.data(), results.at(0));

  multiply(tokens_by_tokens_, values, gradient, gradients_.data());
  multiply(columns_by_rows_, gradient, shares_.data(), results.at(3));
  causal_softmax_gradient(shares_.data(), gradients_.data(), type_, shape_.matrices(), shape_.tokens, shape_.scale(),
                          stream);
  multiply(shares_by_rows_, keys, gradients_.data(), results.at(1));
  multiply(columns_by_rows_, queries, gradients_.data(), results.at(2));
}

double attention_error(Device& device, const AttentionTensors& results, ElementType type, const AttentionShape& shape,
                       std::uint64_t seed, cudaStream_t stream) {
  const AttentionShape one{1, 1, shape.tokens, shape.width};
  const auto matrix = static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(shape.matrices()));
  const AttentionTensors operands(device, ElementType::kFp64, one);
  const AttentionTensors expected(device, ElementType::kFp64, one);
  const SeparateAttention exact(device, ElementType::kFp64, one);
  const DeviceBuffer<double> sums(device, 8);
  fill_attention(operands, ElementType::kFp64, one, seed, matrix, stream);
  exact.enqueue(operands, expected, stream);
  check(cudaMemsetAsync(sums.data(), 0, sums.bytes(), stream));
  double* sum = sums.data();
  for (int tensor = 0; tensor < 4; ++tensor, sum += 2) {
    const std::byte* const found = results.at(tensor) + matrix * one.elements() * element_bytes(type);
    add_squared_error({found, type, one.width, {0, one.width, 1}, one.tokens},
                      reinterpret_cast<const double*>(expected.at(tensor)), sum, stream);
  }
  std::array<double, 8> host{};
  check(cudaMemcpyAsync(host.data(), sums.data(), sums.bytes(), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  double largest = 0;
  for (std::size_t tensor = 0; tensor < 4; ++tensor) {
    const double error = std::sqrt(host[2 * tensor] / host[2 * tensor + 1]);
    if (std::isnan(error)) return error;
    largest = std::max(largest, error);
  }
  return largest;
}

}  // namespace gpulift
