#include "workloads/bias_gelu_epilogue.hpp"

#include <stdexcept>

#include "kernels/device_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

using BiasGeluEpilogueOnDevice = DeviceTest;

TEST_F(BiasGeluEpilogueOnDevice, BiasAndGeluAreRightWhereverTheyAreTaken) {
  const std::string reason = why_matmul_unsupported(MatmulType::kBf16, device().architecture());
  if (!reason.empty()) GTEST_SKIP() << reason;
  const MatmulShape shape{256, 128, 512};
  for (const MatmulEpilogue epilogue :
       {MatmulEpilogue::kBiasGelu, MatmulEpilogue::kBiasGeluKept, MatmulEpilogue::kBiasGeluApart}) {
    Matmul matmul(device(), MatmulType::kBf16, shape, 23, {.epilogue = epilogue});
    for (int step = 0; step < 3; ++step) {  // buffers rotate, and what is kept with them
      matmul.poison(stream());
      EXPECT_FALSE(matmul.error(stream()) <= 1);
      matmul.enqueue(stream());
      EXPECT_LE(matmul.error(stream()), 2 * matmul_tolerance(MatmulType::kBf16, shape.k)) << static_cast<int>(epilogue);
    }
  }
}

TEST_F(BiasGeluEpilogueOnDevice, OnlyBf16HasOne) {
  EXPECT_THROW(Matmul(device(), MatmulType::kFp32, {256, 128, 512}, 23, {.epilogue = MatmulEpilogue::kBiasGelu}),
               std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
