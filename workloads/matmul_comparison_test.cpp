#include "workloads/matmul_comparison.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/testing/checking_trial.hpp"
#include "core/testing/trial_of_test.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

/// A product of another kind, which counts what the check asks of it.
struct OtherProduct {
  double error_of_it = 0;
  int poisoned = 0;
  void poison(StreamHandle) { ++poisoned; }
  double error(StreamHandle) const { return error_of_it; }
};

/// Makes each arm and asks the check for its error.
class AskingTrial final : public TrialOfTest {
 public:
  AskingTrial() : TrialOfTest(nullptr, {}) {}

  void compare(std::vector<Arm> arms) override {
    for (const Arm& arm : arms) {
      const Work work = arm.make();
      check_of_case().poison(nullptr);
      errors[arm.name] = check_of_case().error(nullptr);
    }
  }

  using TrialOfTest::check_of_case;
  std::map<std::string, double> errors;
};

TEST(MatmulComparison, ChecksByTheProductThatWasMadeLastAndHoldsNone) {
  AskingTrial trial;
  MatmulComparison products(trial, {64, 64, 64});
  std::vector<std::weak_ptr<OtherProduct>> made;
  const auto arm_with = [&](const std::string& name, double error) {
    return Arm{.name = name, .make = [&, error]() -> Step {
                 const auto product = std::make_shared<OtherProduct>(OtherProduct{.error_of_it = error});
                 made.push_back(product);
                 products.check_by(product);
                 return [product](StreamHandle stream) { product->poison(stream); };
               }};
  };
  products.compare("how far off", {arm_with("first", 0.25), arm_with("second", 0.5)}, 0.75);
  EXPECT_EQ(trial.errors, (std::map<std::string, double>{{"first", 0.25}, {"second", 0.5}}));
  EXPECT_EQ(trial.check_of_case().meaning, "how far off");
  EXPECT_EQ(trial.check_of_case().tolerance, 0.75);
  ASSERT_EQ(made.size(), 2);
  for (const auto& product : made) EXPECT_TRUE(product.expired());
}

using MatmulComparisonOnDevice = DeviceTest;

TEST_F(MatmulComparisonOnDevice, AnArmHasCostAndToleranceOfItsTypeAndALaterLaunchReusesItsPlan) {
  const MatmulShape shape{256, 128, 512};
  const auto compare = [&](CheckingTrial& trial) {
    MatmulComparison products(trial, shape);
    products.compare("error", {products.arm("tf32", MatmulType::kTf32, {}, {.budget_s = 0.05}),
                               products.arm("half", MatmulType::kFp16, {.split_k = SplitK::kNever})});
  };
  CheckingTrial first(device(), {});
  compare(first);
  const auto& half = first.results().at("half");
  ASSERT_EQ(half.unavailable, "");
  EXPECT_EQ(half.cost.flops, shape.flops());
  EXPECT_EQ(half.cost.roof, "gemm/fp16");
  EXPECT_EQ(half.tolerance, matmul_tolerance(MatmulType::kFp16, shape.k));
  EXPECT_GT(half.error, 0);
  EXPECT_LE(half.error, half.tolerance);
  EXPECT_TRUE(first.notes().contains("plan/half"));
  CheckingTrial second(device(), {}, first.notes());
  compare(second);
  EXPECT_EQ(second.notes(), first.notes());
}

TEST_F(MatmulComparisonOnDevice, AnArmTakesTheAlgorithmOfAnotherWhereThereIsOne) {
  CheckingTrial trial(device(), {});
  MatmulComparison products(trial, {256, 256, 256});
  EXPECT_EQ(products.arm_like("first", "lonely", MatmulType::kFp32).unavailable, "first has no algorithm here");
  ASSERT_EQ(products.arm("first", MatmulType::kFp32, {}, {.budget_s = 0.05}).unavailable, "");
  ASSERT_EQ(products.arm_like("first", "second", MatmulType::kFp32).unavailable, "");
  const std::string& found = trial.notes().at("algorithm/first");
  EXPECT_EQ(found.substr(0, found.find(';')), trial.notes().at("algorithm/second"));
}

TEST_F(MatmulComparisonOnDevice, AnArmByOtherMeansIsGivenTheNextBuffersAndChecked) {
  const MatmulShape shape{64, 64, 64};
  CheckingTrial trial(device(), {});
  MatmulComparison products(trial, shape);
  int made = 0;
  const void* last = nullptr;
  const auto nothing = [&]() -> MatmulComparison::Multiply {
    ++made;
    return [&](const Matmul::Buffers& buffers, StreamHandle) {
      EXPECT_NE(buffers.d, last);
      last = buffers.d;
    };
  };
  products.compare("error", {products.arm_by("nothing", MatmulType::kFp32, {}, nothing)});
  EXPECT_EQ(made, 1);
  EXPECT_NE(last, nullptr);
  const auto& arm = trial.results().at("nothing");
  EXPECT_FALSE(arm.error <= arm.tolerance) << "a result that nobody wrote";
  EXPECT_EQ(arm.cost.roof, "gemm/fp32");
}

// What cuBLASLt refuses of a shape is up to its version and the card; no card has both of these.
TEST_F(MatmulComparisonOnDevice, AnArmThatCannotRunHereSaysWhy) {
  const int architecture = device().architecture();
  const bool has_fp4 = why_matmul_unsupported(MatmulType::kFp4, architecture).empty();
  const Fp8Scaling foreign = has_fp4 ? Fp8Scaling::kRow : Fp8Scaling::kNvfp4;
  CheckingTrial trial(device(), {});
  MatmulComparison products(trial, {128, 128, 128});
  const Arm arm = products.arm("foreign", has_fp4 ? MatmulType::kFp8 : MatmulType::kFp4, {.scaling = foreign});
  EXPECT_NE(arm.unavailable, "");
  EXPECT_EQ(arm.unavailable, why_scaling_unsupported(foreign, architecture));
  EXPECT_FALSE(arm.make);
}

}  // namespace
}  // namespace gpulift
