#include "workloads/matmul.hpp"

#include <cublas_api.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

#include "core/cuda/check.hpp"
#include "core/cuda/check_cublas.hpp"
#include "core/cuda/handles.hpp"
#include "core/testing/trial_of_test.hpp"

namespace gpulift {
namespace {

constexpr std::array kTypes{MatmulType::kFp32, MatmulType::kTf32, MatmulType::kFp16, MatmulType::kFp16Sums,
                            MatmulType::kBf16, MatmulType::kFp8,  MatmulType::kInt8};

MatmulPlan some_plan() {
  MatmulPlan plan;
  plan.shape = {4224, 8192, 2048};
  plan.library_version = 130100;
  plan.algorithm = {1, 0, 0xFFFFFFFFFFFFFFFF, 0xA, 5, 6, 7, 0x8000000000000000};
  return plan;
}

TEST(CheckCublas, ThrowsByKindAndNamesTheStatus) {
  EXPECT_NO_THROW(check(CUBLAS_STATUS_SUCCESS));
  EXPECT_THROW(check(CUBLAS_STATUS_ALLOC_FAILED), OutOfMemory);
  EXPECT_THROW(check(CUBLAS_STATUS_NOT_SUPPORTED), NotSupported);
  try {
    check(CUBLAS_STATUS_INVALID_VALUE);
    FAIL() << "no exception";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("CUBLAS_STATUS_INVALID_VALUE"), std::string::npos) << text;
    EXPECT_NE(text.find("matmul_test.cpp"), std::string::npos) << text;
  }
}

TEST(MatmulTypes, NamesAreReadBack) {
  for (const MatmulType type : kTypes) EXPECT_EQ(parse_matmul_type(matmul_type_name(type)), type);
  EXPECT_THROW(parse_matmul_type("fp4"), std::invalid_argument);
  EXPECT_THROW(parse_matmul_type(""), std::invalid_argument);
}

TEST(MatmulTypes, ArchitecturesDecide) {
  EXPECT_EQ(why_matmul_unsupported(MatmulType::kFp8, 90), "");
  EXPECT_EQ(why_matmul_unsupported(MatmulType::kFp8, 89), "");
  EXPECT_EQ(why_matmul_unsupported(MatmulType::kFp8, 86),
            "fp8 products need compute capability 8.9 or later; this device has 8.6");
  EXPECT_NE(why_matmul_unsupported(MatmulType::kTf32, 75), "");
  EXPECT_NE(why_matmul_unsupported(MatmulType::kBf16, 75), "");
  EXPECT_EQ(why_matmul_unsupported(MatmulType::kInt8, 75), "");
  EXPECT_EQ(why_matmul_unsupported(MatmulType::kFp16, 75), "");
  EXPECT_EQ(why_matmul_unsupported(MatmulType::kFp16Sums, 75), "");
  EXPECT_NE(why_matmul_unsupported(MatmulType::kFp8, 80), "");
  EXPECT_EQ(why_matmul_unsupported(MatmulType::kFp32, 75), "");
}

TEST(MatmulTypes, ArchitecturesDecideOnScalings) {
  for (const int architecture : {75, 80}) {
    for (const Fp8Scaling scaling :
         {Fp8Scaling::kGiven, Fp8Scaling::kTensor, Fp8Scaling::kRow, Fp8Scaling::kBlock, Fp8Scaling::kMxfp8}) {
      EXPECT_NE(why_scaling_unsupported(scaling, architecture), "") << architecture;
    }
  }
  EXPECT_EQ(why_scaling_unsupported(Fp8Scaling::kTensor, 89), "");
  EXPECT_EQ(why_scaling_unsupported(Fp8Scaling::kRow, 89),
            "cuBLASLt scales rows and blocks of 128 on compute capability 9.0 alone; this device has 8.9");
  EXPECT_EQ(why_scaling_unsupported(Fp8Scaling::kRow, 90), "");
  EXPECT_EQ(why_scaling_unsupported(Fp8Scaling::kBlock, 90), "");
  EXPECT_NE(why_scaling_unsupported(Fp8Scaling::kBlock, 100), "");
  EXPECT_EQ(why_scaling_unsupported(Fp8Scaling::kNvfp4, 90),
            "formats with a scale per 16 or 32 numbers need compute capability 10.0 or later; this device has 9.0");
  EXPECT_NE(why_scaling_unsupported(Fp8Scaling::kNvfp4, 100), "");
}

TEST(MatmulShapes, TextIsReadBack) {
  const MatmulShape shape = parse_matmul_shape("4224x8192x2048");
  EXPECT_EQ(shape, (MatmulShape{4224, 8192, 2048}));
  EXPECT_EQ(to_string(shape), "4224x8192x2048");
  EXPECT_EQ(shape.flops(), 2.0 * 4224 * 8192 * 2048);
}

TEST(MatmulShapes, OtherTextIsRefused) {
  for (const char* text : {"", "1", "1x2", "1x2x3x4", "1x2x", "x2x3", "1x2x3x", "0x2x3", "-1x2x3", "1x2x3a", "axbxc"}) {
    EXPECT_THROW(parse_matmul_shape(text), std::invalid_argument) << text;
  }
}

TEST(MatmulShapes, PaddingRoundsRowsAndTermsUpAndLeavesColumns) {
  EXPECT_EQ(padded_to({50257, 100, 768}, 64), (MatmulShape{50304, 100, 768}));
  EXPECT_EQ(padded_to({4096, 100, 10922}, 64), (MatmulShape{4096, 100, 10944}));
  EXPECT_EQ(padded_to({1, 1, 1}, 8), (MatmulShape{8, 1, 8}));
  EXPECT_EQ(padded_to({10923, 7, 5}, 1), (MatmulShape{10923, 7, 5}));
}

/// What a case notes and recalls.
class NotingTrial final : public TrialOfTest {
 public:
  using TrialOfTest::TrialOfTest;
  void compare(std::vector<Arm>) override {}
};

TEST(MatmulPlans, ALaterLaunchTakesThePlanOfAnEarlierOne) {
  MatmulPlan found = some_plan();
  found.library_version = matmul_library_version();
  found.description = "the fastest";
  NotingTrial first(nullptr, {});
  plan_of_case(first, "bf16", [&] { return found; });
  NotingTrial second(nullptr, {}, first.notes());
  const MatmulPlan again = plan_of_case(second, "bf16", []() -> MatmulPlan { throw std::logic_error("searched"); });
  EXPECT_EQ(to_string(again), to_string(found));
  EXPECT_EQ(again.description, "the fastest");
  EXPECT_EQ(second.notes(), first.notes());
}

TEST(MatmulPlans, APlanOfAnotherLibraryIsSearchedAnew) {
  MatmulPlan old = some_plan();
  old.library_version = 1;
  NotingTrial trial(nullptr, {}, {{"plan/bf16", to_string(old)}});
  EXPECT_EQ(plan_of_case(trial, "bf16", [] { return some_plan(); }).library_version, some_plan().library_version);
  EXPECT_EQ(trial.notes().at("plan/bf16"), to_string(some_plan()));
}

TEST(MatmulPlans, TextIsReadBack) {
  const MatmulPlan plan = some_plan();
  const MatmulPlan read = parse_matmul_plan(to_string(plan));
  EXPECT_EQ(read.shape, plan.shape);
  EXPECT_EQ(read.library_version, plan.library_version);
  EXPECT_EQ(read.algorithm, plan.algorithm);
}

TEST(MatmulPlans, OtherTextIsRefused) {
  const std::string text = to_string(some_plan());
  std::string bad_digit = text;
  bad_digit.back() = 'g';
  EXPECT_THROW(parse_matmul_plan(""), std::invalid_argument);
  EXPECT_THROW(parse_matmul_plan(text.substr(0, text.size() - 1)), std::invalid_argument);
  EXPECT_THROW(parse_matmul_plan(text + "0"), std::invalid_argument);
  EXPECT_THROW(parse_matmul_plan(text + " 1"), std::invalid_argument);
  EXPECT_THROW(parse_matmul_plan(bad_digit), std::invalid_argument);
}

// A check must tell each format from the next coarser one. Expected errors: 0.6 u for rounded operands (0.425 sqrt 2),
// of which the comment at matmul_tolerance() has the derivation.
TEST(MatmulTolerances, TellAFormatFromTheNextCoarserOne) {
  constexpr std::int64_t kLongest = 16384;
  const auto expected = [](double input_roundoff) { return 0.6 * input_roundoff; };
  EXPECT_LT(matmul_tolerance(MatmulType::kFp32, kLongest), expected(0x1p-11));  // tf32 rounded to nearest
  EXPECT_LT(matmul_tolerance(MatmulType::kTf32, kLongest), expected(0x1p-8));   // bf16
  EXPECT_LT(matmul_tolerance(MatmulType::kFp16, kLongest), expected(0x1p-8));
  EXPECT_LT(matmul_tolerance(MatmulType::kBf16, kLongest), expected(0x1p-4));  // e4m3
  EXPECT_LT(matmul_tolerance(MatmulType::kFp8, kLongest), 1);
  EXPECT_EQ(matmul_tolerance(MatmulType::kInt8, kLongest), 0);
}

TEST(MatmulTolerances, LeaveRoomForTheExpectedError) {
  EXPECT_GT(matmul_tolerance(MatmulType::kTf32, 1), 8e-4);  // cut, not rounded
  EXPECT_GT(matmul_tolerance(MatmulType::kFp16, 1), 1.5 * 0.74 * 0x1p-11);
  EXPECT_GT(matmul_tolerance(MatmulType::kBf16, 1), 1.5 * 0.74 * 0x1p-8);
  EXPECT_GT(matmul_tolerance(MatmulType::kFp8, 1), 1.5 * 0.6 * 0x1p-4);
  EXPECT_GT(matmul_tolerance(MatmulType::kFp32, 16384), matmul_tolerance(MatmulType::kFp32, 1));
}

class MatmulOnDevice : public testing::TestWithParam<MatmulType> {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no CUDA device";
    device_.emplace(0);
    const std::string reason = why_matmul_unsupported(GetParam(), device_->architecture());
    if (!reason.empty()) GTEST_SKIP() << reason;
    stream_ = make_stream();
  }

  std::optional<Device> device_;
  UniqueStream stream_;
};

template <typename T>
std::vector<double> downloaded(const void* data, std::size_t count) {
  std::vector<std::byte> bytes(count * sizeof(T));
  check(cudaMemcpy(bytes.data(), data, bytes.size(), cudaMemcpyDeviceToHost));
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, &bytes[i * sizeof(T)], sizeof(T));
    values[i] = static_cast<double>(static_cast<float>(value));
  }
  return values;
}

std::vector<double> operand(MatmulType type, const void* data, std::size_t count) {
  switch (type) {
    case MatmulType::kFp32:
    case MatmulType::kTf32:
      return downloaded<float>(data, count);
    case MatmulType::kFp16:
    case MatmulType::kFp16Sums:
      return downloaded<__half>(data, count);
    case MatmulType::kBf16:
      return downloaded<__nv_bfloat16>(data, count);
    case MatmulType::kFp8:
      return downloaded<__nv_fp8_e4m3>(data, count);
    case MatmulType::kInt8:
      return downloaded<std::int8_t>(data, count);
  }
  return {};
}

std::vector<double> product(MatmulType type, const void* data, std::size_t count) {
  if (type == MatmulType::kFp16 || type == MatmulType::kFp16Sums) return downloaded<__half>(data, count);
  if (type == MatmulType::kBf16 || type == MatmulType::kFp8) return downloaded<__nv_bfloat16>(data, count);
  if (type == MatmulType::kInt8) return downloaded<std::int32_t>(data, count);  // below 2^24, so exact as a float
  return downloaded<float>(data, count);
}

// Against loops on the host over the operands as the device holds them: only products and sums are rounded, so fp8 and
// bf16 may be off by their result's rounding, 2^-8 at most; sums in fp16 by less.
TEST_P(MatmulOnDevice, AgreesWithLoopsOnTheHost) {
  constexpr std::size_t kM = 48;
  constexpr std::size_t kN = 32;
  constexpr std::size_t kK = 64;
  Matmul matmul(*device_, GetParam(), {kM, kN, kK}, 11);
  matmul.poison(stream_.get());
  matmul.enqueue(stream_.get());
  check(cudaStreamSynchronize(stream_.get()));
  const Matmul::Buffers buffers = matmul.latest();
  const std::vector<double> a = operand(GetParam(), buffers.a, kM * kK);
  const std::vector<double> b = operand(GetParam(), buffers.b, kN * kK);
  const std::vector<double> d = product(GetParam(), buffers.d, kM * kN);
  const double scale = GetParam() == MatmulType::kFp8 ? 1.0 / (64 * 64) : 1;
  double difference = 0;
  double norm = 0;
  for (std::size_t row = 0; row < kM; ++row) {
    for (std::size_t column = 0; column < kN; ++column) {
      double sum = 0;
      for (std::size_t i = 0; i < kK; ++i) sum += scale * a[row * kK + i] * b[column * kK + i];
      difference += std::pow(d[column * kM + row] - sum, 2);
      norm += sum * sum;
    }
  }
  EXPECT_GT(norm, 0);
  EXPECT_LE(std::sqrt(difference / norm), GetParam() == MatmulType::kInt8 ? 0 : 0x1p-8);
}

TEST_P(MatmulOnDevice, ErrorIsWithinToleranceAndOnlyIntegersHaveNone) {
  const MatmulShape shape{256, 128, 512};
  Matmul matmul(*device_, GetParam(), shape, 12);
  matmul.poison(stream_.get());
  matmul.enqueue(stream_.get());
  const double error = matmul.error(stream_.get());
  EXPECT_LE(error, matmul_tolerance(GetParam(), shape.k));
  EXPECT_EQ(error > 0, GetParam() != MatmulType::kInt8);
}

TEST_P(MatmulOnDevice, ASampleOfRowsHasTheErrorOfTheWhole) {
  const MatmulShape shape{4096, 4224, 64};  // more than 4096 x 4096 elements
  Matmul matmul(*device_, GetParam(), shape, 13);
  matmul.enqueue(stream_.get());
  EXPECT_LE(matmul.error(stream_.get()), matmul_tolerance(GetParam(), shape.k));
  matmul.poison(stream_.get());
  EXPECT_FALSE(matmul.error(stream_.get()) <= matmul_tolerance(GetParam(), shape.k));
}

TEST_P(MatmulOnDevice, AResultThatWasNotWrittenIsFound) {
  const MatmulShape shape{64, 64, 64};
  Matmul matmul(*device_, GetParam(), shape, 14);
  matmul.enqueue(stream_.get());
  matmul.poison(stream_.get());
  EXPECT_FALSE(matmul.error(stream_.get()) <= matmul_tolerance(GetParam(), shape.k));
}

TEST_P(MatmulOnDevice, BuffersRotateBeyondTheCache) {
  const MatmulShape shape{64, 64, 64};
  Matmul matmul(*device_, GetParam(), shape, 15);
  const void* first = matmul.latest().d;
  for (int step = 0; step < 5; ++step) {
    const void* before = matmul.latest().d;
    matmul.enqueue(stream_.get());
    EXPECT_NE(matmul.latest().d, before);
    EXPECT_NE(matmul.latest().d, first);
    EXPECT_LE(matmul.error(stream_.get()), matmul_tolerance(GetParam(), shape.k));
  }
}

TEST_P(MatmulOnDevice, MovesOnToBuffersForAProductOfOnesOwn) {
  const MatmulShape shape{64, 64, 64};
  Matmul matmul(*device_, GetParam(), shape, 22);
  matmul.enqueue(stream_.get());
  const void* before = matmul.latest().d;
  EXPECT_NE(matmul.next().d, before);
  matmul.poison(stream_.get());
  EXPECT_FALSE(matmul.error(stream_.get()) <= matmul_tolerance(GetParam(), shape.k));
}

TEST_P(MatmulOnDevice, APlanThatWasFoundCanBeUsedAgain) {
  const MatmulShape shape{512, 512, 512};
  const Matmul::Found found = Matmul(*device_, GetParam(), shape, 16).search({.budget_s = 0.05});
  EXPECT_GT(found.time_s, 0);
  EXPECT_EQ(found.plan.shape, shape);
  EXPECT_NE(found.plan.description.find("candidates timed"), std::string::npos);
  Matmul again(*device_, GetParam(), shape, 17);
  again.use(parse_matmul_plan(to_string(found.plan)));
  again.enqueue(stream_.get());
  EXPECT_LE(again.error(stream_.get()), matmul_tolerance(GetParam(), shape.k));
}

TEST_P(MatmulOnDevice, APlanForSomethingElseIsRefused) {
  const MatmulPlan plan = Matmul(*device_, GetParam(), {128, 128, 128}, 18).search({.budget_s = 0.01}).plan;
  Matmul other(*device_, GetParam(), {128, 128, 256}, 18);
  EXPECT_THROW(other.use(plan), std::invalid_argument);
  MatmulPlan old_plan = plan;
  old_plan.library_version = 1;
  Matmul same(*device_, GetParam(), {128, 128, 128}, 18);
  EXPECT_THROW(same.use(old_plan), std::invalid_argument);
}

TEST_P(MatmulOnDevice, TheBestOfSomeShapesIsOneOfThem) {
  const std::array<MatmulShape, 4> shapes{{{64, 64, 64}, {128, 128, 128}, {1024, 1024, 1024}, {256, 256, 256}}};
  const MatmulPlan plan = find_best_matmul(*device_, GetParam(), shapes, 19, {.budget_s = 0.4});
  EXPECT_NE(std::find(shapes.begin(), shapes.end(), plan.shape), shapes.end());
}

TEST_P(MatmulOnDevice, ASearchWithoutShapesIsRefused) {
  EXPECT_THROW(find_best_matmul(*device_, GetParam(), {}, 20, {}), std::invalid_argument);
}

TEST_P(MatmulOnDevice, ASearchWhereNothingFitsIsOutOfMemory) {
  const std::array<MatmulShape, 3> shapes{{{1 << 24, 64, 1 << 20}, {1 << 24, 128, 1 << 20}, {1 << 24, 192, 1 << 20}}};
  EXPECT_THROW(find_best_matmul(*device_, GetParam(), shapes, 21, {}), OutOfMemory);
}

TEST_P(MatmulOnDevice, PaddingChangesNoResult) {
  if (GetParam() == MatmulType::kFp8) GTEST_SKIP() << "fp8 products have no unpadded form to compare with";
  const MatmulShape shape{60, 64, 124};
  for (const bool pads_b : {false, true}) {
    Matmul padded(*device_, GetParam(), shape, 22, {.stored = padded_to(shape, 64), .pads_b = pads_b});
    padded.poison(stream_.get());
    padded.enqueue(stream_.get());
    EXPECT_LE(padded.error(stream_.get()), matmul_tolerance(GetParam(), shape.k)) << pads_b;
  }
  EXPECT_THROW(Matmul(*device_, GetParam(), shape, 22, {.stored = {60, 64, 64}}), std::invalid_argument);
}

TEST_P(MatmulOnDevice, BiasAndGeluAreRightWhereverTheyAreTaken) {
  const MatmulShape shape{256, 128, 512};
  for (const MatmulEpilogue epilogue :
       {MatmulEpilogue::kBiasGelu, MatmulEpilogue::kBiasGeluKept, MatmulEpilogue::kBiasGeluApart}) {
    const MatmulOptions options{.epilogue = epilogue};
    if (GetParam() != MatmulType::kBf16) {
      EXPECT_THROW(Matmul(*device_, GetParam(), shape, 23, options), std::invalid_argument);
      continue;
    }
    Matmul matmul(*device_, GetParam(), shape, 23, options);
    for (int step = 0; step < 3; ++step) {  // buffers rotate, and what is kept with them
      matmul.poison(stream_.get());
      EXPECT_FALSE(matmul.error(stream_.get()) <= 1);
      matmul.enqueue(stream_.get());
      EXPECT_LE(matmul.error(stream_.get()), 2 * matmul_tolerance(GetParam(), shape.k)) << static_cast<int>(epilogue);
    }
  }
}

TEST_P(MatmulOnDevice, OperandsAreCastByScalesOfTheirOwn) {
  const MatmulShape shape{256, 384, 640};  // 5 tiles of 128 in a row
  for (const Fp8Scaling scaling : {Fp8Scaling::kTensor, Fp8Scaling::kRow, Fp8Scaling::kBlock}) {
    const MatmulOptions options{.scaling = scaling};
    if (GetParam() != MatmulType::kFp8) {
      EXPECT_THROW(Matmul(*device_, GetParam(), shape, 25, options), std::invalid_argument);
      continue;
    }
    if (!why_scaling_unsupported(scaling, device_->architecture()).empty()) {
      EXPECT_THROW(Matmul(*device_, GetParam(), shape, 25, options), NotSupported);
      continue;
    }
    Matmul matmul(*device_, GetParam(), shape, 25, options);
    for (int step = 0; step < 2; ++step) {
      matmul.poison(stream_.get());
      matmul.enqueue(stream_.get());
      EXPECT_LE(matmul.error(stream_.get()), matmul_tolerance(GetParam(), shape.k)) << static_cast<int>(scaling);
    }
  }
}

TEST_P(MatmulOnDevice, SumsAreSplitOrNotAsAsked) {
  const MatmulShape shape{256, 256, 4096};
  for (const SplitK split : {SplitK::kNever, SplitK::kAlways}) {
    try {
      Matmul matmul(*device_, GetParam(), shape, 24, {.split_k = split});
      const MatmulPlan plan = matmul.search({.budget_s = 0.05}).plan;
      const bool one = plan.description.find("split-K 1,") != std::string::npos ||
                       plan.description.find("split-K 0,") != std::string::npos;
      EXPECT_EQ(one, split == SplitK::kNever) << plan.description;
      matmul.enqueue(stream_.get());
      EXPECT_LE(matmul.error(stream_.get()), matmul_tolerance(GetParam(), shape.k));
    } catch (const NotSupported&) {
      EXPECT_EQ(split, SplitK::kAlways);  // not every type's algorithms can
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulOnDevice, testing::ValuesIn(kTypes),
                         [](const auto& tested) { return matmul_type_name(tested.param); });

}  // namespace
}  // namespace gpulift
