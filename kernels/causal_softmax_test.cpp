#include "kernels/causal_softmax.hpp"

#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "kernels/device_test.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

constexpr float kScale = 0.125F;

TEST(CausalSoftmax, RefusesWhatItCannotLoad) {
  for (const std::int64_t columns : {0, 12, 16392}) {
    EXPECT_THROW(causal_softmax(nullptr, ElementType::kBf16, 1, columns, 1, nullptr), std::invalid_argument);
    EXPECT_THROW(causal_softmax_gradient(nullptr, nullptr, ElementType::kFp64, 1, columns, 1, nullptr),
                 std::invalid_argument);
  }
  EXPECT_THROW(causal_softmax(nullptr, ElementType::kFp32, 1, 8, 1, nullptr), std::invalid_argument);
  EXPECT_THROW(causal_softmax_gradient(nullptr, nullptr, ElementType::kFp16, 1, 8, 1, nullptr), std::invalid_argument);
  EXPECT_THROW(causal_softmax(nullptr, ElementType::kBf16, 1 << 28, 16, 1, nullptr), std::invalid_argument);
}

/// Some rows of a matrix, among them the first and the last.
std::vector<std::size_t> rows_of(std::size_t columns) {
  return {0, 1, 7, columns / 2, columns / 2 + 1, columns - 2, columns - 1};
}

std::vector<double> integers(std::size_t count, std::uint64_t seed) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(random_bits(seed, i) % 33) - 16;
  return values;
}

/// Row `row` of the softmax on the host.
std::vector<double> softmax_of(const std::vector<double>& scores, std::size_t first, std::size_t row,
                               std::size_t columns) {
  std::vector<double> shares(columns, 0);
  double sum = 0;
  for (std::size_t i = 0; i <= row; ++i) sum += shares[i] = std::exp(static_cast<double>(kScale) * scores[first + i]);
  for (double& share : shares) share /= sum;
  return shares;
}

template <typename T>
std::vector<T> as(const std::vector<double>& values) {
  std::vector<T> converted;
  for (const double value : values) converted.push_back(static_cast<T>(static_cast<float>(value)));
  return converted;
}

double as_double(double value) { return value; }
double as_double(__nv_bfloat16 value) { return static_cast<double>(__bfloat162float(value)); }

class CausalSoftmaxOnDevice : public DeviceTest {
 protected:
  template <typename T>
  void expect_right(ElementType type, std::size_t columns, double tolerance) {
    constexpr std::size_t kMatrices = 2;
    const std::vector<double> scores = integers(kMatrices * columns * columns, 1);
    const std::vector<double> slopes = integers(scores.size(), 2);
    const DeviceBuffer<T> results = upload(as<T>(scores));
    const DeviceBuffer<T> gradients = upload(as<T>(slopes));
    causal_softmax(results.data(), type, kMatrices, static_cast<std::int64_t>(columns), kScale, stream());
    causal_softmax_gradient(results.data(), gradients.data(), type, kMatrices, static_cast<std::int64_t>(columns),
                            kScale, stream());
    const std::vector<T> shares = download(results);
    const std::vector<T> found = download(gradients);
    for (const std::size_t row : rows_of(columns)) {
      const std::size_t first = (columns + row) * columns;  // of the second matrix
      const std::vector<double> expected = softmax_of(scores, first, row, columns);
      double sum = 0;
      for (std::size_t i = 0; i <= row; ++i) sum += expected[i] * slopes[first + i];
      for (std::size_t i = 0; i < columns; ++i) {
        ASSERT_NEAR(as_double(shares[first + i]), expected[i], tolerance) << columns << ", row " << row << ": " << i;
        const double gradient = static_cast<double>(kScale) * expected[i] * (slopes[first + i] - sum);
        ASSERT_NEAR(as_double(found[first + i]), gradient, 4 * tolerance) << columns << ", row " << row << ": " << i;
      }
    }
  }
};

// Lengths that end within a vector's warp, and one for each number of elements that a thread may hold.
TEST_F(CausalSoftmaxOnDevice, IsThatOfTheHost) {
  for (const std::size_t columns : {8, 264, 2048, 2056, 4104}) {
    expect_right<__nv_bfloat16>(ElementType::kBf16, columns, 4e-3);
    expect_right<double>(ElementType::kFp64, columns, 1e-6);
  }
}

TEST_F(CausalSoftmaxOnDevice, TakesTheLongestRows) {
  constexpr std::size_t kColumns = 16384;
  const DeviceBuffer<__nv_bfloat16> scores(device(), kColumns * kColumns);
  check(cudaMemsetAsync(scores.data(), 0, scores.bytes(), stream()));
  causal_softmax(scores.data(), ElementType::kBf16, 1, kColumns, 1, stream());
  std::vector<__nv_bfloat16> last(kColumns);
  check(cudaStreamSynchronize(stream()));
  check(cudaMemcpy(last.data(), scores.data() + (kColumns - 1) * kColumns, kColumns * 2, cudaMemcpyDeviceToHost));
  EXPECT_TRUE(std::ranges::all_of(last, [](__nv_bfloat16 share) { return as_double(share) == 0x1p-14; }));
}

}  // namespace
}  // namespace gpulift
