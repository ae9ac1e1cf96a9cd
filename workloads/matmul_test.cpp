#include "workloads/matmul.hpp"

#include <cublas_api.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "core/cuda/check.hpp"
#include "core/cuda/check_cublas.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

constexpr std::array kTypes{MatmulType::kFp32, MatmulType::kTf32, MatmulType::kFp16, MatmulType::kFp16Sums,
                            MatmulType::kBf16, MatmulType::kFp8,  MatmulType::kInt8};

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

class MatmulOnDevice : public DeviceTest, public testing::WithParamInterface<MatmulType> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    const std::string reason = why_matmul_unsupported(GetParam(), device().architecture());
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
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
    case MatmulType::kFp4:
      break;  // it is cast, see fp8_scaling_test.cpp
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
  Matmul matmul(device(), GetParam(), {kM, kN, kK}, 11);
  matmul.poison(stream());
  matmul.enqueue(stream());
  check(cudaStreamSynchronize(stream()));
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
  Matmul matmul(device(), GetParam(), shape, 12);
  matmul.poison(stream());
  matmul.enqueue(stream());
  const double error = matmul.error(stream());
  EXPECT_LE(error, matmul_tolerance(GetParam(), shape.k));
  EXPECT_EQ(error > 0, GetParam() != MatmulType::kInt8);
}

TEST_P(MatmulOnDevice, ASampleOfRowsHasTheErrorOfTheWhole) {
  const MatmulShape shape{4096, 4224, 64};  // more than 4096 x 4096 elements
  Matmul matmul(device(), GetParam(), shape, 13);
  matmul.enqueue(stream());
  EXPECT_LE(matmul.error(stream()), matmul_tolerance(GetParam(), shape.k));
  matmul.poison(stream());
  EXPECT_FALSE(matmul.error(stream()) <= matmul_tolerance(GetParam(), shape.k));
}

TEST_P(MatmulOnDevice, AResultThatWasNotWrittenIsFound) {
  const MatmulShape shape{64, 64, 64};
  Matmul matmul(device(), GetParam(), shape, 14);
  matmul.enqueue(stream());
  matmul.poison(stream());
  EXPECT_FALSE(matmul.error(stream()) <= matmul_tolerance(GetParam(), shape.k));
}

TEST_P(MatmulOnDevice, BuffersRotateBeyondTheCache) {
  const MatmulShape shape{64, 64, 64};
  Matmul matmul(device(), GetParam(), shape, 15);
  const void* first = matmul.latest().d;
  for (int step = 0; step < 5; ++step) {
    const void* before = matmul.latest().d;
    matmul.enqueue(stream());
    EXPECT_NE(matmul.latest().d, before);
    EXPECT_NE(matmul.latest().d, first);
    EXPECT_LE(matmul.error(stream()), matmul_tolerance(GetParam(), shape.k));
  }
}

TEST_P(MatmulOnDevice, MovesOnToBuffersForAProductOfOnesOwn) {
  const MatmulShape shape{64, 64, 64};
  Matmul matmul(device(), GetParam(), shape, 22);
  matmul.enqueue(stream());
  const void* before = matmul.latest().d;
  EXPECT_NE(matmul.next().d, before);
  matmul.poison(stream());
  EXPECT_FALSE(matmul.error(stream()) <= matmul_tolerance(GetParam(), shape.k));
}

TEST_P(MatmulOnDevice, APlanThatWasFoundCanBeUsedAgain) {
  const MatmulShape shape{512, 512, 512};
  const Matmul::Found found = Matmul(device(), GetParam(), shape, 16).search({.budget_s = 0.05});
  EXPECT_GT(found.time_s, 0);
  EXPECT_EQ(found.plan.shape, shape);
  EXPECT_NE(found.plan.description.find("candidates timed"), std::string::npos);
  Matmul again(device(), GetParam(), shape, 17);
  again.use(parse_matmul_plan(to_string(found.plan)));
  again.enqueue(stream());
  EXPECT_LE(again.error(stream()), matmul_tolerance(GetParam(), shape.k));
}

TEST_P(MatmulOnDevice, AnotherTypesAlgorithmIsTakenTileForTileOrNotAtAll) {
  const MatmulShape shape{512, 512, 512};
  const MatmulType other = GetParam() == MatmulType::kFp32 ? MatmulType::kTf32 : MatmulType::kFp32;
  if (!why_matmul_unsupported(other, device().architecture()).empty()) GTEST_SKIP() << "no other type";
  const auto kernel_of = [](const MatmulPlan& plan) { return plan.description.substr(0, plan.description.find(';')); };
  Matmul matmul(device(), GetParam(), shape, 17);
  const MatmulPlan own = matmul.search({.budget_s = 0.01}).plan;
  EXPECT_EQ(kernel_of(matmul.counterpart(own)), kernel_of(own));
  const MatmulPlan foreign = Matmul(device(), other, shape, 17).search({.budget_s = 0.01}).plan;
  try {
    const MatmulPlan plan = matmul.counterpart(foreign);
    EXPECT_EQ(kernel_of(plan), kernel_of(foreign));
    matmul.use(plan);
    matmul.enqueue(stream());
    EXPECT_LE(matmul.error(stream()), matmul_tolerance(GetParam(), shape.k));
  } catch (const NotSupported&) {
    SUCCEED() << "types of different kernels";
  }
}

TEST_P(MatmulOnDevice, APlanForSomethingElseIsRefused) {
  const MatmulPlan plan = Matmul(device(), GetParam(), {128, 128, 128}, 18).search({.budget_s = 0.01}).plan;
  Matmul other(device(), GetParam(), {128, 128, 256}, 18);
  EXPECT_THROW(other.use(plan), std::invalid_argument);
  MatmulPlan old_plan = plan;
  old_plan.library_version = 1;
  Matmul same(device(), GetParam(), {128, 128, 128}, 18);
  EXPECT_THROW(same.use(old_plan), std::invalid_argument);
}

TEST_P(MatmulOnDevice, SumsAreSplitOrNotAsAsked) {
  const MatmulShape shape{256, 256, 4096};
  for (const SplitK split : {SplitK::kNever, SplitK::kAlways}) {
    try {
      Matmul matmul(device(), GetParam(), shape, 24, {.split_k = split});
      const MatmulPlan plan = matmul.search({.budget_s = 0.05}).plan;
      const bool one = plan.description.find("split-K 1,") != std::string::npos ||
                       plan.description.find("split-K 0,") != std::string::npos;
      EXPECT_EQ(one, split == SplitK::kNever) << plan.description;
      matmul.enqueue(stream());
      EXPECT_LE(matmul.error(stream()), matmul_tolerance(GetParam(), shape.k));
    } catch (const NotSupported&) {
      EXPECT_EQ(split, SplitK::kAlways);  // not every type's algorithms can
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulOnDevice, testing::ValuesIn(kTypes),
                         [](const auto& tested) { return matmul_type_name(tested.param); });

}  // namespace
}  // namespace gpulift
