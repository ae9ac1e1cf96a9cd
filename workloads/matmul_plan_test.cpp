#include "workloads/matmul_plan.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "core/testing/trial_of_test.hpp"

namespace gpulift {
namespace {

MatmulPlan some_plan() {
  MatmulPlan plan;
  plan.shape = {4224, 8192, 2048};
  plan.library_version = 130100;
  plan.algorithm = {1, 0, 0xFFFFFFFFFFFFFFFF, 0xA, 5, 6, 7, 0x8000000000000000};
  return plan;
}

TEST(MatmulShapes, TextIsReadBack) {
  const MatmulShape shape = parse_matmul_shape("4224x8192x2048");
  EXPECT_EQ(shape, (MatmulShape{4224, 8192, 2048}));
  EXPECT_EQ(to_string(shape), "4224x8192x2048");
  EXPECT_EQ(shape.flops(), 2.0 * 4224 * 8192 * 2048);
}

TEST(MatmulShapes, OtherTextIsRefused) {
  for (const char* text : {"", "1", "1x2", "1x2x3x4", "1x2x", "x2x3", "1x2x3x", "0x2x3", "-1x2x3", "1x2x3a", "axbxc"}) {
    EXPECT_THROW(parse_matmul_shape(text), std::invalid_argument) << text;
  }
}

TEST(MatmulShapes, PaddingRoundsRowsAndTermsUpAndLeavesColumns) {
  EXPECT_EQ(padded_to({50257, 100, 768}, 64), (MatmulShape{50304, 100, 768}));
  EXPECT_EQ(padded_to({4096, 100, 10922}, 64), (MatmulShape{4096, 100, 10944}));
  EXPECT_EQ(padded_to({1, 1, 1}, 8), (MatmulShape{8, 1, 8}));
  EXPECT_EQ(padded_to({10923, 7, 5}, 1), (MatmulShape{10923, 7, 5}));
}

/// What a case notes and recalls.
class NotingTrial final : public TrialOfTest {
 public:
  using TrialOfTest::TrialOfTest;
  void compare(std::vector<Arm>) override {}
};

TEST(MatmulPlans, ALaterLaunchTakesThePlanOfAnEarlierOne) {
  MatmulPlan found = some_plan();
  found.library_version = matmul_library_version();
  found.description = "the fastest";
  NotingTrial first(nullptr, {});
  plan_of_case(first, "bf16", [&] { return found; });
  NotingTrial second(nullptr, {}, first.notes());
  const MatmulPlan again = plan_of_case(second, "bf16", []() -> MatmulPlan { throw std::logic_error("searched"); });
  EXPECT_EQ(to_string(again), to_string(found));
  EXPECT_EQ(again.description, "the fastest");
  EXPECT_EQ(second.notes(), first.notes());
}

TEST(MatmulPlans, APlanOfAnotherLibraryIsSearchedAnew) {
  MatmulPlan old = some_plan();
  old.library_version = 1;
  NotingTrial trial(nullptr, {}, {{"plan/bf16", to_string(old)}});
  EXPECT_EQ(plan_of_case(trial, "bf16", [] { return some_plan(); }).library_version, some_plan().library_version);
  EXPECT_EQ(trial.notes().at("plan/bf16"), to_string(some_plan()));
}

TEST(MatmulPlans, TextIsReadBack) {
  const MatmulPlan plan = some_plan();
  const MatmulPlan read = parse_matmul_plan(to_string(plan));
  EXPECT_EQ(read.shape, plan.shape);
  EXPECT_EQ(read.library_version, plan.library_version);
  EXPECT_EQ(read.algorithm, plan.algorithm);
}

TEST(MatmulPlans, OtherTextIsRefused) {
  const std::string text = to_string(some_plan());
  std::string bad_digit = text;
  bad_digit.back() = 'g';
  EXPECT_THROW(parse_matmul_plan(""), std::invalid_argument);
  EXPECT_THROW(parse_matmul_plan(text.substr(0, text.size() - 1)), std::invalid_argument);
  EXPECT_THROW(parse_matmul_plan(text + "0"), std::invalid_argument);
  EXPECT_THROW(parse_matmul_plan(text + " 1"), std::invalid_argument);
  EXPECT_THROW(parse_matmul_plan(bad_digit), std::invalid_argument);
}

}  // namespace
}  // namespace gpulift
