#include "kernels/adamw.hpp"

#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "kernels/device_test.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

constexpr float kUntouched = -77;
constexpr AdamWRates kRates{.rate = 0.01F, .beta1 = 0.875F, .beta2 = 0.9375F, .epsilon = 1e-8F, .decay = 0.5F};
constexpr int kStep = 3;

TEST(TensorPieces, CoverEachTensorOnce) {
  const std::vector<std::size_t> counts{1, 0, 10, 11, 20};
  std::vector<std::size_t> found(counts.size());
  for (const TensorPiece& piece : cut_tensors(counts, 10)) {
    EXPECT_EQ(piece.index, found.at(piece.tensor)++) << "in order: " << piece.tensor;
  }
  EXPECT_EQ(found, (std::vector<std::size_t>{1, 0, 1, 2, 2}));
  EXPECT_EQ(pieces_of_tensors(counts, 10), found);
}

/// What one tensor is before a step.
struct Before {
  Before(std::size_t count, std::uint64_t seed) {
    const auto uniform = [&](std::size_t place) {
      return static_cast<float>(random_bits(seed, place) >> 40) / 16777216.0F;
    };
    for (std::size_t i = 0; i < count; ++i) {
      gradient.push_back(__float2bfloat16(2 * uniform(4 * i) - 1));
      master.push_back(4 * uniform(4 * i + 1) - 2);
      mean.push_back(uniform(4 * i + 2) - 0.5F);
      square.push_back(uniform(4 * i + 3));
    }
  }
  std::vector<__nv_bfloat16> gradient;
  std::vector<float> master, mean, square;
};

/// Tensors of all kinds of tails, one of them empty, and more than one piece; each has a guard behind its end.
class AdamW : public DeviceTest {
 protected:
  static constexpr std::size_t kGuard = 16;

  struct OnDevice {
    DeviceBuffer<__nv_bfloat16> weight, gradient;
    DeviceBuffer<float> master, mean, square;
  };

  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    for (const std::size_t count : counts_) {
      const Before& from = before_.emplace_back(count, 100 + count);
      OnDevice& to =
          on_device_.emplace_back(OnDevice{guarded(std::vector<__nv_bfloat16>(count)), guarded(from.gradient),
                                           guarded(from.master), guarded(from.mean), guarded(from.square)});
      tensors_.push_back(
          {to.weight.data(), to.gradient.data(), to.master.data(), to.mean.data(), to.square.data(), count});
    }
  }
  template <typename T>
  DeviceBuffer<T> guarded(std::vector<T> values) {
    values.resize(values.size() + kGuard, T(kUntouched));
    return upload(values);
  }

  /// All numbers of a tensor as FP64 makes them of what was before, or as they were.
  void expect_tensor(std::size_t t, bool stepped, bool rounded = true) {
    const Before& from = before_[t];
    const std::vector<float> master = download(on_device_[t].master);
    const std::vector<float> mean = download(on_device_[t].mean);
    const std::vector<float> square = download(on_device_[t].square);
    const std::vector<__nv_bfloat16> weight = download(on_device_[t].weight);
    for (std::size_t i = 0; i < counts_[t]; ++i) {
      double p = from.master[i];
      double m = from.mean[i];
      double v = from.square[i];
      if (stepped) {
        const double g = static_cast<double>(__bfloat162float(from.gradient[i]));
        m = 0.875 * m + 0.125 * g;
        v = 0.9375 * v + 0.0625 * g * g;
        const double corrected_m = m / (1 - std::pow(0.875, kStep));
        const double corrected_v = v / (1 - std::pow(0.9375, kStep));
        const auto rate = static_cast<double>(kRates.rate);
        p -= rate * 0.5 * p + rate * corrected_m / (std::sqrt(corrected_v) + 1e-8);
      }
      ASSERT_NEAR(static_cast<double>(mean[i]), m, 1e-6) << counts_[t] << ", " << i;
      ASSERT_NEAR(static_cast<double>(square[i]), v, 1e-6) << counts_[t] << ", " << i;
      ASSERT_NEAR(static_cast<double>(master[i]), p, 1e-6 * std::max(1.0, std::abs(p))) << counts_[t] << ", " << i;
      const float wanted = stepped && rounded ? __bfloat162float(__float2bfloat16(master[i])) : 0;
      ASSERT_EQ(__bfloat162float(weight[i]), wanted) << counts_[t] << ", " << i;
    }
    for (std::size_t i = counts_[t]; i < counts_[t] + kGuard; ++i) {
      ASSERT_EQ(master[i], kUntouched) << counts_[t];
      ASSERT_EQ(mean[i], kUntouched) << counts_[t];
      ASSERT_EQ(square[i], kUntouched) << counts_[t];
      ASSERT_EQ(__bfloat162float(weight[i]), kUntouched) << counts_[t];
    }
  }

  const std::vector<std::size_t> counts_{8, 1, 7, 0, 9, kAdamWPiece - 8, kAdamWPiece, kAdamWPiece + 1, 10'001};
  std::vector<AdamWTensor> tensors_;

 private:
  std::vector<Before> before_;
  std::vector<OnDevice> on_device_;
};

TEST_F(AdamW, OneLaunchStepsAllTensors) {
  const auto tensors = upload(tensors_);
  const auto pieces = upload(cut_tensors(counts_, kAdamWPiece));
  adamw(tensors.data(), pieces.data(), pieces.size(), kRates, kStep, stream());
  for (std::size_t t = 0; t < counts_.size(); ++t) expect_tensor(t, true);
}

TEST_F(AdamW, PiecesOfOneTensorLeaveTheOthersAlone) {
  constexpr std::size_t kTensor = 7;
  const auto tensors = upload(tensors_);
  const auto pieces = upload(cut_tensors(counts_, kAdamWPiece));
  const std::vector<std::size_t> each = pieces_of_tensors(counts_, kAdamWPiece);
  std::size_t first = 0;
  for (std::size_t t = 0; t < kTensor; ++t) first += each[t];
  adamw(tensors.data(), pieces.data() + first, each[kTensor], kRates, kStep, stream());
  for (std::size_t t = 0; t < counts_.size(); ++t) expect_tensor(t, t == kTensor);
}

TEST_F(AdamW, ReferenceIsThatOfTheHost) {
  for (std::size_t t = 0; t < counts_.size(); ++t) {
    adamw_reference(tensors_[t], kRates, kStep, stream());
    expect_tensor(t, true, false);
  }
}

TEST(AdamWArguments, RefuseAStepBeforeTheFirst) {
  EXPECT_THROW(adamw(nullptr, nullptr, 1, kRates, 0, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
