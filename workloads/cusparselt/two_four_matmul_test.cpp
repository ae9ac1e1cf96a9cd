#include "workloads/cusparselt/two_four_matmul.hpp"

#include <algorithm>

#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

TEST(TwoFourMatmul, ArchitecturesDecide) {
  EXPECT_EQ(why_two_four_unsupported(75),
            "2:4 sparse products need compute capability 8.0 or later; this device has 7.5");
  EXPECT_EQ(why_two_four_unsupported(80), "");
  EXPECT_EQ(why_two_four_unsupported(89), "");
  EXPECT_EQ(why_two_four_unsupported(90), "");
}

TEST(TwoFourMatmul, TheLibraryTellsItsVersion) {
  const std::string version = cusparselt_version();
  EXPECT_EQ(std::count(version.begin(), version.end(), '.'), 2) << version;
}

using TwoFourMatmulOnDevice = DeviceTest;

TEST_F(TwoFourMatmulOnDevice, GivesTheProductOfWhatIsNotZero) {
  if (!why_two_four_unsupported(device().architecture()).empty()) GTEST_SKIP() << "no 2:4";
  const MatmulShape shape{256, 128, 512};
  const double tolerance = matmul_tolerance(MatmulType::kBf16, shape.k);
  TwoFourMatmul matmul(device(), shape, 5);
  for (int step = 0; step < 3; ++step) {
    matmul.poison(false, stream());
    EXPECT_FALSE(matmul.error(stream()) <= tolerance);
    matmul.enqueue(false, stream());
    EXPECT_LE(matmul.error(stream()), tolerance);
  }
  matmul.poison(true, stream());
  matmul.enqueue(true, stream());
  EXPECT_LE(matmul.error(stream()), tolerance) << "compressed anew";
}

}  // namespace
}  // namespace gpulift
