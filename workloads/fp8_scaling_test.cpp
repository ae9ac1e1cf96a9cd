#include "workloads/fp8_scaling.hpp"

#include <cublasLt.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/check_cublas.hpp"
#include "core/cuda/error.hpp"
#include "kernels/device_test.hpp"
#include "kernels/fp8_cast.hpp"
#include "workloads/lt_operation.hpp"
#include "workloads/matmul.hpp"
#include "workloads/matmul_operand.hpp"

namespace gpulift {
namespace {

TEST(Fp8Scaling, ArchitecturesDecide) {
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
  for (const int architecture : {100, 103, 120}) {
    EXPECT_EQ(why_scaling_unsupported(Fp8Scaling::kMxfp8, architecture), "") << architecture;
    EXPECT_EQ(why_scaling_unsupported(Fp8Scaling::kNvfp4, architecture), "") << architecture;
  }
}

using Fp8ScalingOnDevice = DeviceTest;

TEST_F(Fp8ScalingOnDevice, OperandsAreCastByScalesOfTheirOwn) {
  const MatmulShape shape{256, 384, 640};  // 5 tiles of 128 in a row
  for (const Fp8Scaling scaling :
       {Fp8Scaling::kTensor, Fp8Scaling::kRow, Fp8Scaling::kBlock, Fp8Scaling::kMxfp8, Fp8Scaling::kNvfp4}) {
    const MatmulType type = scaling == Fp8Scaling::kNvfp4 ? MatmulType::kFp4 : MatmulType::kFp8;
    const MatmulOptions options{.scaling = scaling};
    if (!why_scaling_unsupported(scaling, device().architecture()).empty()) {
      EXPECT_THROW(Matmul(device(), type, shape, 25, options), NotSupported);
      continue;
    }
    Matmul matmul(device(), type, shape, 25, options);
    for (int step = 0; step < 2; ++step) {
      matmul.poison(stream());
      matmul.enqueue(stream());
      EXPECT_LE(matmul.error(stream()), matmul_tolerance(type, shape.k)) << static_cast<int>(scaling);
    }
  }
}

// Else a product whose cast did nothing would be that of the last cast.
TEST_F(Fp8ScalingOnDevice, PoisonReachesWhatAStepCastsAndScalesWithoutPadding) {
  constexpr std::int64_t kRows = 128;
  constexpr std::int64_t kColumns = 256;
  constexpr std::int64_t kSets = 2;
  for (const Fp8Scaling scaling :
       {Fp8Scaling::kTensor, Fp8Scaling::kRow, Fp8Scaling::kBlock, Fp8Scaling::kMxfp8, Fp8Scaling::kNvfp4}) {
    if (!why_scaling_unsupported(scaling, device().architecture()).empty()) continue;
    const bool in_blocks = scaling == Fp8Scaling::kMxfp8 || scaling == Fp8Scaling::kNvfp4;
    const auto operand = make_cast_operand(device(), scaling, MatmulSide::kA, {25, kColumns}, kRows, kSets);
    std::vector<std::uint8_t> numbers(kRows * kColumns / (scaling == Fp8Scaling::kNvfp4 ? 2 : 1));
    std::uint8_t scale = 0;
    for (std::int64_t set = 0; set < kSets; ++set) operand->prepare(set, stream());
    operand->poison(stream());
    check(cudaStreamSynchronize(stream()));
    check(cudaMemcpy(&scale, operand->scales(), sizeof scale, cudaMemcpyDeviceToHost));
    if (scaling != Fp8Scaling::kBlock) EXPECT_EQ(scale, in_blocks ? 0xFF : kHugeFloats) << static_cast<int>(scaling);
    for (std::int64_t set = 0; set < kSets; ++set) {
      check(cudaMemcpy(numbers.data(), operand->at(set), numbers.size(), cudaMemcpyDeviceToHost));
      EXPECT_EQ(std::ranges::count(numbers, 0xFF), std::ssize(numbers)) << static_cast<int>(scaling) << " " << set;
    }
  }
}

class ScaleOfATensor final : public MatmulOperand {
 public:
  explicit ScaleOfATensor(const float* scale) : scale_(scale) {}
  void* at(std::int64_t /*set*/) const override { return nullptr; }
  const float* tensor_scale() const override { return scale_; }

 private:
  const float* scale_;
};

// Which any card can show, as the product needs no FP4 for it.
TEST_F(Fp8ScalingOnDevice, AProductIsMultipliedByBothScalesAsTheyLieOnTheDevice) {
  constexpr std::int64_t kSide = 64;
  LtOperation operation(ElementType::kBf16, ElementType::kBf16, CUBLAS_COMPUTE_32F, CUDA_R_32F, {kSide, kSide, kSide});
  const DeviceBuffer<__nv_bfloat16> operand(device(), kSide * kSide);
  const DeviceBuffer<__nv_bfloat16> result(device(), kSide * kSide);
  const DeviceBuffer<std::byte> workspace(device(), kMatmulWorkspaceBytes);
  fill_normals(operand.data(), ElementType::kBf16, {25, kSide}, {0, kSide, 1}, 1, 0, stream());
  const auto multiply = [&] {
    check(cudaMemsetAsync(result.data(), 0xFF, result.bytes(), stream()));
    check(operation.enqueue(operand.data(), operand.data(), result.data(), operation.candidates(1).front().algo,
                            workspace.data(), stream()));
    return download(result);
  };
  const auto plain = multiply();
  const auto four = upload(std::vector<float>{4});
  const auto half = upload(std::vector<float>{0.5f});
  const ScaleOfATensor a(four.data());
  const ScaleOfATensor b(half.data());
  const ProductScale scale(device(), operation, a, b);
  scale.prepare(stream());
  const auto scaled = multiply();
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const float expected = 2 * static_cast<float>(plain[i]);
    ASSERT_NEAR(static_cast<float>(scaled[i]), expected, 0x1p-7f * std::abs(expected) + 1e-3f) << i;
  }
  scale.poison(stream());
  for (const __nv_bfloat16 number : multiply()) ASSERT_TRUE(std::isnan(static_cast<float>(number)));
}

TEST_F(Fp8ScalingOnDevice, OnlyFp8WithoutPaddingIsCastAndFp4AsNvfp4Alone) {
  const MatmulShape shape{128, 128, 128};
  EXPECT_THROW(Matmul(device(), MatmulType::kFp4, shape, 25, {.scaling = Fp8Scaling::kTensor}), std::invalid_argument);
  EXPECT_THROW(Matmul(device(), MatmulType::kFp4, shape, 25), std::invalid_argument);
  EXPECT_THROW(Matmul(device(), MatmulType::kFp8, shape, 25, {.scaling = Fp8Scaling::kNvfp4}), std::invalid_argument);
  EXPECT_THROW(Matmul(device(), MatmulType::kFp16, shape, 25, {.scaling = Fp8Scaling::kTensor}), std::invalid_argument);
  EXPECT_THROW(
      Matmul(device(), MatmulType::kFp8, shape, 25, {.stored = {256, 128, 128}, .scaling = Fp8Scaling::kTensor}),
      std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
