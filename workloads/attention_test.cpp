#include "workloads/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

TEST(AttentionShape, CountsItsWork) {
  const AttentionShape shape{2, 3, 8, 4};
  EXPECT_EQ(shape.matrices(), 6);
  EXPECT_EQ(shape.elements(), 192);
  EXPECT_EQ(shape.scores(), 384);
  EXPECT_EQ(shape.flops(), 6.0 * 384 * 4);
  EXPECT_EQ(shape.scale(), 0.5F);
}

class AttentionOnDevice : public DeviceTest {
 protected:
  static constexpr AttentionShape kShape{2, 2, 72, 64};

  /// The tensor's matrix on the host.
  std::vector<double> matrix(const AttentionTensors& tensors, int tensor) {
    std::vector<double> host(static_cast<std::size_t>(kShape.tokens * kShape.width));
    check(cudaStreamSynchronize(stream()));
    check(cudaMemcpy(host.data(), tensors.at(tensor), host.size() * sizeof(double), cudaMemcpyDeviceToHost));
    return host;
  }
};

double dot(const std::vector<double>& left, std::size_t row, const std::vector<double>& right, std::size_t other) {
  double sum = 0;
  for (std::size_t i = 0; i < 64; ++i) sum += left[row * 64 + i] * right[other * 64 + i];
  return sum;
}

// Sums written out: o_i = sum p_ij v_j; dv_j = sum p_ij g_i; ds_ij = p_ij (g_i v_j - g_i o_i); dq_i = sum ds_ij k_j s.
TEST_F(AttentionOnDevice, InFp64IsThatOfTheHost) {
  const AttentionShape one{1, 1, kShape.tokens, kShape.width};
  const AttentionTensors operands(device(), ElementType::kFp64, one);
  const AttentionTensors results(device(), ElementType::kFp64, one);
  fill_attention(operands, ElementType::kFp64, one, 5, 0, stream());
  const SeparateAttention attention(device(), ElementType::kFp64, one);
  attention.enqueue(operands, results, stream());
  const std::vector<double> q = matrix(operands, 0);
  const std::vector<double> k = matrix(operands, 1);
  const std::vector<double> v = matrix(operands, 2);
  const std::vector<double> g = matrix(operands, 3);
  std::vector<std::vector<double>> expected(4, std::vector<double>(q.size(), 0));
  const auto scale = static_cast<double>(one.scale());
  for (std::size_t i = 0; i < 72; ++i) {
    std::vector<double> shares;
    double sum = 0;
    for (std::size_t j = 0; j <= i; ++j) sum += shares.emplace_back(std::exp(scale * dot(q, i, k, j)));
    for (std::size_t j = 0; j <= i; ++j) shares[j] /= sum;
    for (std::size_t j = 0; j <= i; ++j) {
      for (std::size_t c = 0; c < 64; ++c) expected[0][i * 64 + c] += shares[j] * v[j * 64 + c];
    }
    const double own = dot(g, i, expected[0], i);
    for (std::size_t j = 0; j <= i; ++j) {
      const double slope = scale * shares[j] * (dot(g, i, v, j) - own);
      for (std::size_t c = 0; c < 64; ++c) {
        expected[1][i * 64 + c] += slope * k[j * 64 + c];
        expected[2][j * 64 + c] += slope * q[i * 64 + c];
        expected[3][j * 64 + c] += shares[j] * g[i * 64 + c];
      }
    }
  }
  for (int tensor = 0; tensor < 4; ++tensor) {
    const std::vector<double> found = matrix(results, tensor);
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[static_cast<std::size_t>(tensor)][i], 1e-4) << tensor << ", " << i;
    }
  }
}

TEST_F(AttentionOnDevice, InBf16ErrsByItsRoundingsAndTheCheckFindsMore) {
  const AttentionTensors operands(device(), ElementType::kBf16, kShape);
  const AttentionTensors results(device(), ElementType::kBf16, kShape);
  const auto error = [&](std::uint64_t seed) {
    return attention_error(device(), results, ElementType::kBf16, kShape, seed, stream());
  };
  fill_attention(operands, ElementType::kBf16, kShape, 6, 0, stream());
  results.fill_with_nan(stream());
  EXPECT_TRUE(std::isnan(error(6)));
  const SeparateAttention attention(device(), ElementType::kBf16, kShape);
  attention.enqueue(operands, results, stream());
  EXPECT_LE(error(6), kAttentionTolerance);
  EXPECT_GT(error(6), 1e-4);
  EXPECT_GT(error(7), 0.5) << "of other operands";
}

}  // namespace
}  // namespace gpulift
