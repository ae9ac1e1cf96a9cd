#include "precision.hpp"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <limits>
#include <stdexcept>

#include "optimizer.hpp"

namespace gpulift {
namespace {

bool tf32_is_on(at::Float32Op operation) {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, operation) == at::Float32Precision::TF32;
}

bool casts_on_the_host() { return at::autocast::is_autocast_enabled(torch::kCPU); }

TEST(PrecisionNames, AreThoseOfTheArms) {
  EXPECT_EQ(precision_named("fp32"), Precision::kFp32);
  EXPECT_EQ(precision_named("tf32"), Precision::kTf32);
  EXPECT_EQ(precision_named("fp16"), Precision::kFp16);
  EXPECT_EQ(precision_named("bf16"), Precision::kBf16);
  EXPECT_EQ(precision_named("pure_bf16"), Precision::kPureBf16);
  EXPECT_THROW(precision_named("fp8"), std::invalid_argument);
}

TEST(PrecisionNames, HaveTheRoofOfTheirProducts) {
  EXPECT_EQ(roof_of(Precision::kFp32, torch::kCUDA), "gemm/fp32");
  EXPECT_EQ(roof_of(Precision::kTf32, torch::kCUDA), "gemm/tf32");
  EXPECT_EQ(roof_of(Precision::kFp16, torch::kCUDA), "gemm/fp16");
  EXPECT_EQ(roof_of(Precision::kBf16, torch::kCUDA), "gemm/bf16");
  EXPECT_EQ(roof_of(Precision::kPureBf16, torch::kCUDA), "gemm/bf16");
  EXPECT_EQ(roof_of(Precision::kFp32, torch::kCPU), "host_gemm/fp32");
  EXPECT_EQ(roof_of(Precision::kTf32, torch::kCPU), "host_gemm/fp32") << "TF32 is a format of GPUs";
  EXPECT_EQ(roof_of(Precision::kPureBf16, torch::kCPU), "host_gemm/bf16");
}

TEST(PrecisionNames, EveryHostMultipliesInFp32) {
  EXPECT_TRUE(host_multiplies_in(Precision::kFp32));
  EXPECT_TRUE(host_multiplies_in(Precision::kTf32)) << "there it is FP32";
  EXPECT_EQ(host_multiplies_in(Precision::kBf16), host_multiplies_in(Precision::kPureBf16));
}

TEST(Tf32, IsOnForItsOwnPrecisionAloneInProductsConvolutionsAndRecurrences) {
  for (const at::Float32Op operation : {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN}) {
    use_switches_of(Precision::kTf32);
    EXPECT_TRUE(tf32_is_on(operation));
    for (const Precision other : {Precision::kFp32, Precision::kFp16, Precision::kBf16, Precision::kPureBf16}) {
      use_switches_of(Precision::kTf32);
      use_switches_of(other);
      EXPECT_FALSE(tf32_is_on(operation));
    }
  }
}

torch::ScalarType type_of_a_product(Precision precision) {
  const torch::Tensor factor = torch::ones({4, 4});
  const Autocast autocast(precision, torch::kCPU);
  return torch::matmul(factor, factor).scalar_type();
}

TEST(AutocastRegion, CastsProductsToTheTypeOfItsPrecision) {
  EXPECT_EQ(type_of_a_product(Precision::kFp32), torch::kFloat32);
  EXPECT_EQ(type_of_a_product(Precision::kTf32), torch::kFloat32);
  EXPECT_EQ(type_of_a_product(Precision::kFp16), torch::kFloat16);
  EXPECT_EQ(type_of_a_product(Precision::kBf16), torch::kBFloat16);
  EXPECT_EQ(type_of_a_product(Precision::kPureBf16), torch::kFloat32);  // its tensors have their type already
}

TEST(AutocastRegion, IsOverWhenItEndsAndItsTypeIsAsBefore) {
  const auto before = at::autocast::get_autocast_dtype(torch::kCPU);
  {
    const Autocast autocast(Precision::kFp16, torch::kCPU);
    EXPECT_TRUE(casts_on_the_host());
    EXPECT_EQ(at::autocast::get_autocast_dtype(torch::kCPU), torch::kFloat16);
  }
  EXPECT_FALSE(casts_on_the_host());
  EXPECT_EQ(at::autocast::get_autocast_dtype(torch::kCPU), before);
}

TEST(AutocastRegion, IsOverWhenAModelThrows) {
  const auto before = at::autocast::get_autocast_dtype(torch::kCPU);
  const auto failing_step = [] {
    const Autocast autocast(Precision::kFp16, torch::kCPU);
    throw std::runtime_error("on purpose");
  };
  EXPECT_THROW(failing_step(), std::runtime_error);
  EXPECT_FALSE(casts_on_the_host());
  EXPECT_EQ(at::autocast::get_autocast_dtype(torch::kCPU), before);
}

TEST(AutocastRegion, OfFp32TurnsAnOuterOneOff) {
  const Autocast outer(Precision::kBf16, torch::kCPU);
  EXPECT_EQ(type_of_a_product(Precision::kFp32), torch::kFloat32);
  EXPECT_TRUE(casts_on_the_host());
}

// Weights change with every step: a cast that outlives its region would be of the weights before the update.
TEST(AutocastRegion, ForgetsItsCastsWhenItEnds) {
  torch::Tensor weight = torch::ones({4, 4}).requires_grad_();
  const torch::Tensor input = torch::ones({1, 4});
  const auto product = [&] {
    const Autocast autocast(Precision::kBf16, torch::kCPU);
    return torch::matmul(input, weight).sum().item<float>();
  };
  EXPECT_EQ(product(), 16);
  {
    const torch::NoGradGuard no_grad;
    weight.mul_(2);
  }
  EXPECT_EQ(product(), 32);
  const auto uses = weight.getIntrusivePtr().use_count();
  product();
  EXPECT_EQ(weight.getIntrusivePtr().use_count(), uses);
}

/// One parameter with a gradient that is scaled as a loss would have scaled it.
class Scaler : public testing::Test {
 protected:
  /// One step of SGD with rate 1, whose gradient is 1, or infinite.
  void step(bool finite) {
    const double gradient = finite ? scaler_.current_scale() : std::numeric_limits<double>::infinity();
    parameter_.mutable_grad() = torch::full({2}, gradient);
    scaler_.unscale({parameter_.grad()});
    optimizer_->step(scaler_.found_inf());
    scaler_.update();
  }

  torch::Tensor parameter_ = torch::zeros({2}).requires_grad_();
  GradScaler scaler_{torch::kCPU};
  std::unique_ptr<Optimizer> optimizer_ =
      make_optimizer({.kind = OptimizerRule::Kind::kSgd, .learning_rate = 1, .weight_decay = 0, .beta1 = 0},
                     OptimizerForm::kFused, {parameter_});
};

TEST_F(Scaler, ScalesTheLossAndUnscalesTheGradients) {
  EXPECT_EQ(scaler_.scale(torch::ones({})).item<double>(), 65536);
  step(true);
  EXPECT_EQ(parameter_[0].item<double>(), -1);
  EXPECT_EQ(scaler_.found_inf().item<double>(), 0);
  EXPECT_EQ(scaler_.current_scale(), 65536);
}

TEST_F(Scaler, AnInjectedInfinitySkipsTheStepAndHalvesTheScale) {
  step(true);
  step(false);
  EXPECT_EQ(scaler_.found_inf().item<double>(), 1);
  EXPECT_EQ(parameter_[0].item<double>(), -1);
  EXPECT_EQ(scaler_.current_scale(), 32768);
  step(true);
  EXPECT_EQ(parameter_[0].item<double>(), -2);
  EXPECT_EQ(scaler_.current_scale(), 32768);
}

TEST_F(Scaler, ANumberThatIsNoneSkipsTheStepToo) {
  parameter_.mutable_grad() = torch::full({2}, std::numeric_limits<double>::quiet_NaN());
  scaler_.unscale({parameter_.grad()});
  EXPECT_EQ(scaler_.found_inf().item<double>(), 1);
}

TEST_F(Scaler, DoublesTheScaleAfter2000StepsWithoutAnInfinity) {
  for (int i = 0; i < 1000; ++i) step(true);
  step(false);  // begins to count anew
  for (int i = 0; i < 1999; ++i) step(true);
  EXPECT_EQ(scaler_.current_scale(), 32768);
  step(true);
  EXPECT_EQ(scaler_.current_scale(), 65536);
}

TEST(Precision, KnowsWhichFormatsAnOlderGpuLacks) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16}) EXPECT_EQ(why_not_in(precision, 75), "");
  for (const Precision precision : {Precision::kTf32, Precision::kBf16, Precision::kPureBf16}) {
    EXPECT_EQ(why_not_in(precision, 75),
              "products of this format need compute capability 8.0 or later; this device has 7.5");
    EXPECT_EQ(why_not_in(precision, 80), "");
    EXPECT_EQ(why_not_in(precision, 120), "");
  }
}

}  // namespace
}  // namespace gpulift
