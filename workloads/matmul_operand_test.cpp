#include "workloads/matmul_operand.hpp"

#include <stdexcept>

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

TEST_F(MatmulOperandOnDevice, FewerSidesThanTheProductHasAreRefused) {
  EXPECT_THROW(Matmul(device(), MatmulType::kFp32, {60, 64, 124}, 22, {.stored = {60, 64, 64}}), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
