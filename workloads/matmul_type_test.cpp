#include "workloads/matmul_type.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace gpulift {
namespace {

TEST(MatmulTypes, NamesAreReadBack) {
  using enum MatmulType;
  for (const MatmulType type : {kFp32, kTf32, kFp16, kFp16Sums, kBf16, kFp8, kFp4, kInt8}) {
    EXPECT_EQ(parse_matmul_type(matmul_type_name(type)), type);
  }
  EXPECT_THROW(parse_matmul_type("fp6"), std::invalid_argument);
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
  EXPECT_EQ(why_matmul_unsupported(MatmulType::kFp4, 100), "");
  EXPECT_NE(why_matmul_unsupported(MatmulType::kFp4, 90), "");
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
  EXPECT_LT(matmul_tolerance(MatmulType::kFp4, kLongest), 0.5);  // a sign, or scales twice as large, are found
  EXPECT_EQ(matmul_tolerance(MatmulType::kInt8, kLongest), 0);
}

TEST(MatmulTolerances, LeaveRoomForTheExpectedError) {
  EXPECT_GT(matmul_tolerance(MatmulType::kTf32, 1), 8e-4);  // cut, not rounded
  EXPECT_GT(matmul_tolerance(MatmulType::kFp16, 1), 1.5 * 0.74 * 0x1p-11);
  EXPECT_GT(matmul_tolerance(MatmulType::kBf16, 1), 1.5 * 0.74 * 0x1p-8);
  EXPECT_GT(matmul_tolerance(MatmulType::kFp8, 1), 1.5 * 0.6 * 0x1p-4);
  EXPECT_GT(matmul_tolerance(MatmulType::kFp4, 1), 1.5 * 0.6 * 0x1p-2);
  EXPECT_GT(matmul_tolerance(MatmulType::kFp32, 16384), matmul_tolerance(MatmulType::kFp32, 1));
}

}  // namespace
}  // namespace gpulift
