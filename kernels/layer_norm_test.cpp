#include "kernels/layer_norm.hpp"

#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "kernels/device_test.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

using Numbers = std::vector<__nv_bfloat16>;

constexpr int kMultiprocessors = 2;  // few blocks, so that each walks down several rows
constexpr std::size_t kGuard = 64;   // numbers behind a result that nobody may write

double exact(__nv_bfloat16 value) { return static_cast<double>(__bfloat162float(value)); }

Numbers numbers(std::size_t count, std::uint64_t seed, double centre = 0) {
  Numbers values;
  for (std::size_t i = 0; i < count; ++i) {
    const double uniform = static_cast<double>(random_bits(seed, i) >> 11) / 9007199254740992.0;
    values.push_back(__float2bfloat16(static_cast<float>(centre + 4 * uniform - 2)));
  }
  return values;
}

/// The forward and the backward pass in FP64.
struct Expected {
  std::vector<double> output, sum_gradient, weight_gradient, bias_gradient;
};

struct Shape {
  std::size_t rows;
  int columns;
  Norm norm = Norm::kLayer;
  NormShape kernel_shape() const { return {.rows = rows, .columns = columns, .norm = norm}; }
  std::size_t count() const { return rows * static_cast<std::size_t>(columns); }
};

struct Inputs {
  explicit Inputs(const Shape& shape)
      : input(numbers(shape.count(), 1, 0.5)),
        residual(numbers(shape.count(), 2)),
        gradient(numbers(shape.count(), 3)),
        skip(numbers(shape.count(), 4)),
        weight(numbers(static_cast<std::size_t>(shape.columns), 5, 1)),
        bias(numbers(static_cast<std::size_t>(shape.columns), 6)) {}
  Numbers sum() const {
    Numbers sums;
    for (std::size_t i = 0; i < input.size(); ++i) {
      sums.push_back(__float2bfloat16(__bfloat162float(input[i]) + __bfloat162float(residual[i])));
    }
    return sums;
  }
  Numbers input, residual, gradient, skip, weight, bias;
};

Expected expected(const Shape& shape, const Inputs& from) {
  const auto columns = static_cast<std::size_t>(shape.columns);
  const bool centred = shape.norm == Norm::kLayer;
  const Numbers sum = from.sum();
  Expected found{std::vector<double>(sum.size()), std::vector<double>(sum.size()), std::vector<double>(columns),
                 std::vector<double>(columns)};
  for (std::size_t row = 0; row < shape.rows; ++row) {
    const std::size_t start = row * columns;
    double mean = 0;
    double variance = 0;
    for (std::size_t i = 0; i < columns; ++i) mean += centred ? exact(sum[start + i]) / shape.columns : 0;
    for (std::size_t i = 0; i < columns; ++i) variance += std::pow(exact(sum[start + i]) - mean, 2) / shape.columns;
    const double rstd = 1 / std::sqrt(variance + 1e-5);
    double mean_gradient = 0;
    double mean_product = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      const double normalised = (exact(sum[start + i]) - mean) * rstd;
      const double gradient = exact(from.gradient[start + i]);
      const double scaled = gradient * exact(from.weight[i]);
      found.output[start + i] = normalised * exact(from.weight[i]) + (centred ? exact(from.bias[i]) : 0);
      found.weight_gradient[i] += gradient * normalised;
      found.bias_gradient[i] += gradient;
      mean_gradient += centred ? scaled / shape.columns : 0;
      mean_product += scaled * normalised / shape.columns;
    }
    for (std::size_t i = 0; i < columns; ++i) {
      const double normalised = (exact(sum[start + i]) - mean) * rstd;
      const double scaled = exact(from.gradient[start + i]) * exact(from.weight[i]);
      found.sum_gradient[start + i] =
          rstd * (scaled - mean_gradient - normalised * mean_product) + exact(from.skip[start + i]);
    }
  }
  return found;
}

class LayerNorm : public DeviceTest, public testing::WithParamInterface<Shape> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) memory_.emplace(*this, GetParam());
  }

  struct Memory {
    Memory(LayerNorm& test, const Shape& shape)
        : from(shape),
          input(test.upload(from.input)),
          residual(test.upload(from.residual)),
          gradient(test.upload(from.gradient)),
          skip(test.upload(from.skip)),
          weight(test.upload(from.weight)),
          bias(test.upload(from.bias)),
          sum(test.guarded<__nv_bfloat16>(shape.count())),
          output(test.guarded<__nv_bfloat16>(shape.count())),
          sum_gradient(test.guarded<__nv_bfloat16>(shape.count())),
          mean(test.guarded<float>(shape.rows)),
          rstd(test.guarded<float>(shape.rows)),
          parameter_gradient(test.guarded<float>(2 * static_cast<std::size_t>(shape.columns))),
          partials(test.guarded<float>(norm_partials(shape.kernel_shape(), kMultiprocessors))) {}
    Inputs from;
    DeviceBuffer<__nv_bfloat16> input, residual, gradient, skip, weight, bias, sum, output, sum_gradient;
    DeviceBuffer<float> mean, rstd, parameter_gradient, partials;
  };
  Memory& memory() { return *memory_; }

  NormTensors tensors() {
    Memory& m = memory();
    return {.input = m.input.data(),
            .residual = m.residual.data(),
            .sum = m.sum.data(),
            .output = m.output.data(),
            .output_gradient = m.gradient.data(),
            .skip_gradient = m.skip.data(),
            .sum_gradient = m.sum_gradient.data(),
            .weight = m.weight.data(),
            .bias = m.bias.data(),
            .mean = m.mean.data(),
            .rstd = m.rstd.data(),
            .parameter_gradient = m.parameter_gradient.data(),
            .partials = m.partials.data()};
  }
  void run_forward() { norm_forward(GetParam().kernel_shape(), tensors(), stream()); }
  void run_backward() { norm_backward(GetParam().kernel_shape(), tensors(), kMultiprocessors, stream()); }

  template <typename T>
  DeviceBuffer<T> guarded(std::size_t count) {
    return upload(std::vector<T>(count + kGuard, T(-77)));
  }
  /// `first` on `count` numbers are as expected within tolerance * max(1, |expected|), and what lies behind is
  /// untouched.
  template <typename T>
  void expect_near(const DeviceBuffer<T>& result, const std::vector<double>& expected, double tolerance) {
    const std::vector<T> found = download(result);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(static_cast<float>(found[i])), expected[i],
                  tolerance * std::max(1.0, std::abs(expected[i])))
          << i;
    }
    for (std::size_t i = found.size() - kGuard; i < found.size(); ++i) {
      ASSERT_EQ(static_cast<float>(found[i]), -77) << "behind the end: " << i;
    }
  }
  std::vector<double> summed() {
    std::vector<double> sum;
    for (const __nv_bfloat16 value : memory().from.sum()) sum.push_back(exact(value));
    return sum;
  }
  void expect_parameters(double tolerance) {
    Expected wanted = expected(GetParam(), memory().from);
    std::vector<double>& all = wanted.weight_gradient;
    if (GetParam().norm == Norm::kLayer) {
      all.insert(all.end(), wanted.bias_gradient.begin(), wanted.bias_gradient.end());
    }
    expect_near(memory().parameter_gradient, all, tolerance);
  }

 private:
  std::optional<Memory> memory_;
};

constexpr double kHalfUlp = 1.0 / 256;  // of BF16, whose mantissa has 8 bits, with what FP32 adds

TEST_P(LayerNorm, ForwardIsThatOfDoublePrecision) {
  run_forward();
  expect_near(memory().output, expected(GetParam(), memory().from).output, kHalfUlp);
}

TEST_P(LayerNorm, ForwardWritesTheSum) {
  run_forward();
  expect_near(memory().sum, summed(), 0);
}

TEST_P(LayerNorm, ForwardTakesASumThatIsThere) {
  const Numbers sum = memory().from.sum();
  if (!sum.empty()) check(cudaMemcpy(memory().sum.data(), sum.data(), 2 * sum.size(), cudaMemcpyHostToDevice));
  NormTensors without = tensors();
  without.input = without.residual = nullptr;
  norm_forward(GetParam().kernel_shape(), without, stream());
  expect_near(memory().output, expected(GetParam(), memory().from).output, kHalfUlp);
}

TEST_P(LayerNorm, ForwardWithoutAnOutputLeavesTheStatistics) {
  NormTensors without = tensors();
  without.output = nullptr;
  norm_forward(GetParam().kernel_shape(), without, stream());
  run_backward();
  expect_near(memory().output, {}, 0);
  expect_near(memory().sum_gradient, expected(GetParam(), memory().from).sum_gradient, kHalfUlp);
}

TEST_P(LayerNorm, BackwardIsThatOfDoublePrecision) {
  run_forward();
  run_backward();
  expect_near(memory().sum_gradient, expected(GetParam(), memory().from).sum_gradient, kHalfUlp);
  expect_parameters(1e-4);
}

TEST_P(LayerNorm, BackwardWithoutASkipAddsNone) {
  run_forward();
  NormTensors without = tensors();
  without.skip_gradient = nullptr;
  norm_backward(GetParam().kernel_shape(), without, kMultiprocessors, stream());
  std::vector<double> wanted = expected(GetParam(), memory().from).sum_gradient;
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] -= exact(memory().from.skip[i]);
  expect_near(memory().sum_gradient, wanted, kHalfUlp);
}

TEST_P(LayerNorm, ReferencesAreThoseOfTheHost) {
  run_forward();
  const DeviceBuffer<float> output = guarded<float>(GetParam().count());
  const DeviceBuffer<float> sum_gradient = guarded<float>(GetParam().count());
  const DeviceBuffer<float> sum = guarded<float>(GetParam().count());
  norm_forward_reference(GetParam().kernel_shape(), tensors(), sum.data(), output.data(), stream());
  norm_backward_reference(GetParam().kernel_shape(), tensors(), sum_gradient.data(), memory().parameter_gradient.data(),
                          stream());
  const Expected wanted = expected(GetParam(), memory().from);
  expect_near(sum, summed(), 0);
  expect_near(output, wanted.output, 1e-6);
  expect_near(sum_gradient, wanted.sum_gradient, 1e-6);
  expect_parameters(1e-4);
}

TEST_P(LayerNorm, EqualDataGivesEqualBits) {
  run_forward();
  run_backward();
  const std::vector<float> first = download(memory().parameter_gradient);
  run_backward();
  EXPECT_EQ(download(memory().parameter_gradient), first);
}

/// Rows that fill no block, one, and several of each block; columns of one pack, of a tail in each of the four widths,
/// shared by a warp and by a block.
INSTANTIATE_TEST_SUITE_P(Shapes, LayerNorm,
                         testing::Values(Shape{0, 768}, Shape{1, 8}, Shape{1, 768}, Shape{7, 40}, Shape{8, 256},
                                         Shape{33, 264}, Shape{100, 768}, Shape{13, 1024}, Shape{65, 1000},
                                         Shape{9, 768, Norm::kRms}, Shape{35, 776, Norm::kRms},
                                         Shape{3, 248, Norm::kRms}, Shape{1, 1032}, Shape{5, 2056}, Shape{1, 4096},
                                         Shape{5, 6000}, Shape{7, 8192}, Shape{1, 768, Norm::kRms},
                                         Shape{9, 1024, Norm::kRms}, Shape{0, 4096, Norm::kRms},
                                         Shape{1, 1032, Norm::kRms}, Shape{5, 2056, Norm::kRms},
                                         Shape{7, 4096, Norm::kRms}, Shape{5, 6000, Norm::kRms},
                                         Shape{1, 8192, Norm::kRms}, Shape{7, 8192, Norm::kRms}),
                         [](const auto& info) {
                           return std::to_string(info.param.rows) + "x" + std::to_string(info.param.columns) +
                                  (info.param.norm == Norm::kRms ? "rms" : "");
                         });

TEST(LayerNormArguments, RefuseColumnsThatABlockCannotHoldInPacks) {
  for (const int columns : {0, 4, 12, 769, 1028, 8200}) {
    EXPECT_THROW(norm_forward({.rows = 1, .columns = columns}, {}, nullptr), std::invalid_argument) << columns;
    EXPECT_THROW(norm_backward({.rows = 1, .columns = columns}, {}, 1, nullptr), std::invalid_argument) << columns;
  }
}

TEST(LayerNormArguments, RefuseMisalignedData) {
  alignas(16) const Numbers data(16);
  EXPECT_THROW(norm_forward({.rows = 1, .columns = 8}, {.weight = data.data() + 1}, nullptr), std::invalid_argument);
}

TEST(LayerNormArguments, PartialsAreThoseOfTheBlocksThatThereAre) {
  EXPECT_EQ(norm_partials({.rows = 0, .columns = 8}, 132), 16) << "one block, which writes zeros";
  EXPECT_EQ(norm_partials({.rows = 9, .columns = 8}, 132), 2 * 16);
  EXPECT_EQ(norm_partials({.rows = 65536, .columns = 768}, 132), 264 * 2 * 768);
  EXPECT_EQ(norm_partials({.rows = 9, .columns = 1032}, 132), 9 * 2 * 1032) << "wider than a warp holds: a block a row";
  EXPECT_EQ(norm_partials({.rows = 65536, .columns = 8192}, 132), 264 * 2 * 8192);
}

}  // namespace
}  // namespace gpulift
