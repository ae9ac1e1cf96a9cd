#include <gmock/gmock.h>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using PrecisionAccumulateOnDevice = DeviceTest;

TEST(PrecisionAccumulate, HasAShapeOfFewTilesAndOneOfMany) {
  double least = 1e30;
  double most = 0;
  for (const Value& value : technique->sweep.at(0).values) {
    const MatmulShape shape = parse_matmul_shape(std::get<std::string>(value));
    const double tiles = static_cast<double>(shape.m * shape.n) / (128 * 128);
    least = std::min(least, tiles);
    most = std::max(most, tiles);
  }
  EXPECT_LT(least, 8);
  EXPECT_GT(most, 1024);
}

TEST(PrecisionAccumulate, HoldsSumsAgainstTheLibrarysChoiceAndShowsWholeOnesAsAControl) {
  EXPECT_EQ(technique->arms.front(), "first_choice");
  EXPECT_THAT(technique->controls, testing::Contains("fp32_sums"));
}

TEST_F(PrecisionAccumulateOnDevice, SumsInFp16AreWorseAndSplitOnesAreNot) {
  const CheckingTrial first(*technique, device(), {{"shape", "256x256x16384"}, {"regime", "burst"}});
  const auto& exact = first.results().at("fp32_sums");
  const auto& rough = first.results().at("fp16_sums");
  const auto& split = first.results().at("split_fp32_sums");
  ASSERT_EQ(exact.unavailable, "");
  EXPECT_EQ(first.results().at("first_choice").cost.roof, "gemm/fp16");
  EXPECT_NE(first.notes().at("algorithm/first_choice").find("1 of 1 candidates"), std::string::npos)
      << "a search would be no choice of the library's";
  if (rough.unavailable.empty()) {
    EXPECT_GT(rough.error, 2 * exact.error);
    EXPECT_GT(rough.error, exact.tolerance) << "the tolerance of FP32 sums would let FP16 sums pass";
    EXPECT_EQ(rough.cost.roof, "");
  }
  const auto& alike = first.results().at("fp32_sums_like_fp16");
  if (alike.unavailable.empty()) {
    EXPECT_LE(alike.error, exact.tolerance);
    EXPECT_EQ(alike.cost.roof, "gemm/fp16");
    const std::string& found = first.notes().at("algorithm/fp16_sums");
    EXPECT_EQ(first.notes().at("algorithm/fp32_sums_like_fp16"), found.substr(0, found.find(';')));
  }
  if (split.unavailable.empty()) {
    EXPECT_LE(split.error, exact.tolerance);
    EXPECT_EQ(first.notes().at("algorithm/split_fp32_sums").find("split-K 1,"), std::string::npos);
  }
}

}  // namespace
}  // namespace gpulift
