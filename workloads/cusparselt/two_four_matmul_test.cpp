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

constexpr MatmulShape kShape{256, 128, 512};

TEST_F(TwoFourMatmulOnDevice, GivesTheProductOfWhatIsKeptAndNothingOfAnEarlierStep) {
  if (!why_two_four_unsupported(device().architecture()).empty()) GTEST_SKIP() << "no 2:4";
  const double tolerance = matmul_tolerance(MatmulType::kBf16, kShape.k);
  for (const TwoFourWeights weights :
       {TwoFourWeights::kCompressedOnce, TwoFourWeights::kCompressedEachStep, TwoFourWeights::kGatheredEachStep}) {
    TwoFourMatmul matmul(device(), weights, kShape, 5);
    for (int step = 0; step < 3; ++step) {
      matmul.poison(stream());
      EXPECT_FALSE(matmul.error(stream()) <= tolerance);
      matmul.enqueue(stream());
      EXPECT_LE(matmul.error(stream()), tolerance) << static_cast<int>(weights);
    }
  }
}

// Gathered of a dense A into a form that was compressed of ones: neither what it holds nor where it is has been copied.
TEST_F(TwoFourMatmulOnDevice, WhatIsGatheredLiesWhereTheLibraryPutsIt) {
  if (!why_two_four_unsupported(device().architecture()).empty()) GTEST_SKIP() << "no 2:4";
  TwoFourMatmul library(device(), TwoFourWeights::kCompressedEachStep, kShape, 5);
  TwoFourMatmul own(device(), TwoFourWeights::kGatheredEachStep, kShape, 5);
  own.poison(stream());
  library.enqueue(stream());
  own.enqueue(stream());
  EXPECT_EQ(own.compressed_values(stream()), library.compressed_values(stream()));
}

}  // namespace
}  // namespace gpulift
