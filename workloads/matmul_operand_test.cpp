#include "workloads/matmul_operand.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/cuda/check.hpp"
#include "kernels/device_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

using MatmulOperandOnDevice = DeviceTest;

// Fp8 products have no unpadded form to compare with.
TEST_F(MatmulOperandOnDevice, PaddingChangesNoResult) {
  using enum MatmulType;
  const MatmulShape shape{60, 64, 124};
  for (const MatmulType type : {kFp32, kTf32, kFp16, kFp16Sums, kBf16, kInt8}) {
    if (!why_matmul_unsupported(type, device().architecture()).empty()) continue;
    for (const bool pads_b : {false, true}) {
      Matmul padded(device(), type, shape, 22, {.stored = padded_to(shape, 64), .pads_b = pads_b});
      padded.poison(stream());
      padded.enqueue(stream());
      EXPECT_LE(padded.error(stream()), matmul_tolerance(type, shape.k)) << matmul_type_name(type) << pads_b;
    }
  }
}

TEST_F(MatmulOperandOnDevice, PoisonReachesTheRowsThatAProductCopiesAndLeavesTheZerosBesideThem) {
  constexpr std::int64_t kColumns = 60;
  constexpr std::int64_t kWidth = 64;
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kTotal = 4;
  const auto operand =
      make_copied_operand(device(), ElementType::kFp32, {22, kColumns}, {kRows, kTotal, kWidth}, 1, /*sets=*/2);
  for (const bool copied : {false, true}) {
    operand->poison(stream());
    if (copied) operand->prepare(1, stream());
    check(cudaStreamSynchronize(stream()));
    std::vector<float> numbers(kTotal * kWidth);
    check(cudaMemcpy(numbers.data(), operand->at(1), numbers.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (std::int64_t i = 0; i < kTotal * kWidth; ++i) {
      const float number = numbers[static_cast<std::size_t>(i)];
      const bool of_rows = i / kWidth < kRows && i % kWidth < kColumns;
      ASSERT_EQ(std::isnan(number), of_rows && !copied) << i;
      ASSERT_EQ(number == 0, !of_rows) << i;
    }
  }
}

TEST_F(MatmulOperandOnDevice, FewerSidesThanTheProductHasAreRefused) {
  EXPECT_THROW(Matmul(device(), MatmulType::kFp32, {60, 64, 124}, 22, {.stored = {60, 64, 64}}), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
