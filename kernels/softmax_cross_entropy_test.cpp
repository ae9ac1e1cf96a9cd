#include "kernels/softmax_cross_entropy.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "kernels/device_test.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

constexpr std::size_t kGuard = 64;  // numbers behind a result that nobody may write
constexpr float kUntouched = -77;

struct Shape {
  std::size_t rows;
  int classes;
  std::size_t count() const { return rows * static_cast<std::size_t>(classes); }
};

struct Expected {
  std::vector<double> losses, gradient;
};

/// The largest logit of a row is subtracted here, and a row is walked twice: none of the kernels does both.
Expected expected(const Shape& shape, const std::vector<__nv_bfloat16>& logits,
                  const std::vector<std::int32_t>& targets, double scale) {
  Expected found;
  for (std::size_t row = 0; row < shape.rows; ++row) {
    const std::size_t start = row * static_cast<std::size_t>(shape.classes);
    const auto logit = [&](int i) {
      return static_cast<double>(__bfloat162float(logits[start + static_cast<std::size_t>(i)]));
    };
    double largest = logit(0);
    for (int i = 0; i < shape.classes; ++i) largest = std::max(largest, logit(i));
    double sum = 0;
    for (int i = 0; i < shape.classes; ++i) sum += std::exp(logit(i) - largest);
    found.losses.push_back(largest + std::log(sum) - logit(targets[row]));
    for (int i = 0; i < shape.classes; ++i) {
      found.gradient.push_back((std::exp(logit(i) - largest) / sum - (i == targets[row] ? 1 : 0)) * scale);
    }
  }
  return found;
}

class SoftmaxCrossEntropy : public DeviceTest, public testing::WithParamInterface<Shape> {
 protected:
  static constexpr float kScale = 0.125F;

  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    for (std::size_t i = 0; i < GetParam().count(); ++i) {
      const double uniform = static_cast<double>(random_bits(1, i) >> 11) / 9007199254740992.0;
      logits_.push_back(__float2bfloat16(static_cast<float>(16 * uniform - 8)));
    }
    for (std::size_t row = 0; row < GetParam().rows; ++row) {
      const auto classes = static_cast<std::uint64_t>(GetParam().classes);
      // The first and the last class among them, which are where packs begin and end.
      const std::uint64_t target = row == 0 ? 0 : row == 1 ? classes - 1 : random_bits(2, row) % classes;
      targets_.push_back(static_cast<std::int32_t>(target));
    }
    allocate();
  }

  /// Uploads logits and targets, and makes room for the results.
  void allocate() {
    memory_.emplace(Memory{upload(logits_), upload(targets_),
                           upload(std::vector<float>(GetParam().rows + kGuard, kUntouched)),
                           upload(std::vector<__nv_bfloat16>(GetParam().count() + kGuard, kUntouched))});
  }
  CrossEntropy data() {
    return {.rows = GetParam().rows,
            .classes = GetParam().classes,
            .scale = kScale,
            .logits = memory_->logits.data(),
            .targets = memory_->targets.data(),
            .losses = memory_->losses.data(),
            .gradient = memory_->gradient.data()};
  }

  template <typename T>
  void expect_near(const DeviceBuffer<T>& result, const std::vector<double>& wanted, double tolerance, double floor) {
    const std::vector<T> found = download(result);
    ASSERT_EQ(found.size(), wanted.size() + kGuard);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(static_cast<float>(found[i])), wanted[i],
                  tolerance * std::max(floor, std::abs(wanted[i])))
          << i;
    }
    for (std::size_t i = wanted.size(); i < found.size(); ++i) {
      ASSERT_EQ(static_cast<float>(found[i]), kUntouched) << "behind the end: " << i;
    }
  }
  /// Gradients of classes that are hardly likely count as zero.
  void expect_results(double loss_tolerance, double gradient_tolerance) {
    const Expected wanted = expected(GetParam(), logits_, targets_, static_cast<double>(kScale));
    expect_near(memory_->losses, wanted.losses, loss_tolerance, 1);
    expect_near(memory_->gradient, wanted.gradient, gradient_tolerance, 1e-9);
  }

  std::vector<__nv_bfloat16> logits_;
  std::vector<std::int32_t> targets_;

 private:
  struct Memory {
    DeviceBuffer<__nv_bfloat16> logits;
    DeviceBuffer<std::int32_t> targets;
    DeviceBuffer<float> losses;
    DeviceBuffer<__nv_bfloat16> gradient;
  };

 protected:
  std::optional<Memory> memory_;
};

constexpr double kHalfUlp = 1.0 / 256;  // of BF16, whose mantissa has 8 bits, with what FP32 adds

TEST_P(SoftmaxCrossEntropy, FusedIsThatOfDoublePrecision) {
  cross_entropy(data(), cross_entropy_held_bytes(GetParam().classes), stream());
  expect_results(1e-5, kHalfUlp);
}

TEST_P(SoftmaxCrossEntropy, FusedThatReadsRowsTwiceGivesTheSame) {
  cross_entropy(data(), 0, stream());
  expect_results(1e-5, kHalfUlp);
}

TEST_P(SoftmaxCrossEntropy, ClassesThatAreRuledOutGetNoGradient) {
  const auto last = static_cast<std::size_t>(GetParam().classes - 1);
  for (std::size_t i = 0; i < logits_.size(); ++i) {  // all but the last of each row, so that whole packs are
    if (i % (last + 1) != last) logits_[i] = __float2bfloat16(-std::numeric_limits<float>::infinity());
  }
  for (std::int32_t& target : targets_) target = static_cast<std::int32_t>(last);
  allocate();
  cross_entropy(data(), cross_entropy_held_bytes(GetParam().classes), stream());
  expect_results(1e-5, kHalfUlp);
}

TEST_P(SoftmaxCrossEntropy, LargeLogitsDoNotOverflow) {
  for (__nv_bfloat16& logit : logits_) logit = __float2bfloat16(1000 + __bfloat162float(logit));
  allocate();
  cross_entropy(data(), cross_entropy_held_bytes(GetParam().classes), stream());
  expect_results(1e-5, kHalfUlp);
}

TEST_P(SoftmaxCrossEntropy, ReferenceIsThatOfTheHost) {
  const auto losses = upload(std::vector<float>(GetParam().rows + kGuard, kUntouched));
  const auto gradient = upload(std::vector<float>(GetParam().count() + kGuard, kUntouched));
  cross_entropy_reference(data(), losses.data(), gradient.data(), stream());
  const Expected wanted = expected(GetParam(), logits_, targets_, static_cast<double>(kScale));
  expect_near(losses, wanted.losses, 1e-6, 1);
  expect_near(gradient, wanted.gradient, 1e-6, 1e-9);
}

/// No row, one class, rows that are all loose, that begin at each place of a pack, and that no thread sees all batches
/// of.
INSTANTIATE_TEST_SUITE_P(Shapes, SoftmaxCrossEntropy,
                         testing::Values(Shape{0, 8}, Shape{1, 1}, Shape{5, 1}, Shape{9, 3}, Shape{3, 8}, Shape{9, 15},
                                         Shape{9, 1001}, Shape{2, 4096}, Shape{3, 16385}, Shape{3, 50257}),
                         [](const auto& info) {
                           return std::to_string(info.param.rows) + "x" + std::to_string(info.param.classes);
                         });

TEST(SoftmaxCrossEntropyArguments, RefuseNoClassAndMisalignedData) {
  alignas(16) const __nv_bfloat16 data[16] = {};
  EXPECT_THROW(cross_entropy({.rows = 1, .classes = 0}, 0, nullptr), std::invalid_argument);
  EXPECT_THROW(cross_entropy({.rows = 1, .classes = 8, .logits = data + 1}, 0, nullptr), std::invalid_argument);
}

class SoftmaxCrossEntropyHeld : public DeviceTest {};

TEST_F(SoftmaxCrossEntropyHeld, RowsThatNoSharedMemoryHoldsAreReadTwice) {
  EXPECT_EQ(cross_entropy_held_bytes(1001), 125 * 16);
  EXPECT_EQ(cross_entropy_held_bytes(1 << 20), 0);
}

}  // namespace
}  // namespace gpulift
