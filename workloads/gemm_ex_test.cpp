#include "workloads/gemm_ex.hpp"

#include "kernels/device_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

using GemmExOnDevice = DeviceTest;

TEST_F(GemmExOnDevice, MultipliesTheBuffersOfAMatmulOddOrPadded) {
  const std::string reason = why_matmul_unsupported(MatmulType::kBf16, device().architecture());
  if (!reason.empty()) GTEST_SKIP() << reason;
  const MatmulShape shape{127, 64, 63};
  const GemmEx gemm(device());
  for (const std::int64_t multiple : {1, 64}) {
    const MatmulShape stored = padded_to(shape, multiple);
    Matmul matmul(device(), MatmulType::kBf16, shape, 26, {.stored = stored});
    for (int step = 0; step < 2; ++step) {
      matmul.poison(stream());
      EXPECT_FALSE(matmul.error(stream()) <= 1);
      gemm.enqueue(stored, matmul.next(), stream());
      EXPECT_LE(matmul.error(stream()), matmul_tolerance(MatmulType::kBf16, shape.k)) << multiple;
    }
  }
}

}  // namespace
}  // namespace gpulift
