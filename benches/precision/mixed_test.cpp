#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "core/testing/host_checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

Point point(const std::string& model, const std::string& batch) { return {{"model", model}, {"batch", batch}}; }

TEST(Mixed, EveryPrecisionFollowsFp32WithinItsToleranceButNotToTheLastDigit) {
  const HostCheckingTrial trial(*technique, point("gpt_toy", "equal"));
  for (const auto& result : trial.results()) {
    if (!result.arm.unavailable.empty()) continue;
    EXPECT_LE(result.error, result.tolerance) << result.arm.name;
    if (!result.arm.name.ends_with("32")) {
      EXPECT_GT(result.error, 1e-7) << result.arm.name;
    }
  }
  EXPECT_EQ(trial.results()[0].error, trial.results()[4].error) << "TF32 is FP32 on a host";
  EXPECT_EQ(trial.notes().at("tf32_computed_in"), "fp32: TF32 is a format of GPUs");
}

TEST(Mixed, HasNoLargestBatchOnAHost) {
  EXPECT_THROW(HostCheckingTrial(*technique, point("gpt_toy", "largest")), std::runtime_error);
}

class MixedOnADevice : public DeviceTest {};

TEST_F(MixedOnADevice, FitsMoreAtHalfTheBytesAndStaysWithinTheBudget) {
  const CheckingTrial trial(*technique, device(), point("lstm", "largest"));
  const auto batch_of = [&](const std::string& arm) { return std::stoll(trial.notes().at("largest_batch_" + arm)); };
  EXPECT_GT(batch_of("bf16"), batch_of("fp32"));
  EXPECT_GT(batch_of("pure_bf16"), batch_of("fp32"));
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_LE(arm.metrics.at("peak_allocated_bytes"), 13.0 * (1 << 30)) << name;
    EXPECT_GE(arm.metrics.at("peak_allocated_bytes"), 10.0 * (1 << 30)) << name;
  }
}

TEST_F(MixedOnADevice, SearchesOnceForAllLaunches) {
  std::map<std::string, std::string> known;
  for (const std::string arm : {"fp32", "tf32", "fp16", "bf16", "pure_bf16"}) known["largest_batch_" + arm] = "16";
  const CheckingTrial trial(*technique, device(), point("lstm", "largest"), known);
  for (const auto& [name, arm] : trial.results()) EXPECT_EQ(arm.cost.items, 16 * 128) << name;
  EXPECT_EQ(trial.notes().at("largest_batch_fp32"), "16");
}

}  // namespace
}  // namespace gpulift
