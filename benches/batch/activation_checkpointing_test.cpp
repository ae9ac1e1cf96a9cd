#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "core/testing/host_checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/torch/repeating_kernels.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

Point point(const std::string& model, const std::string& batch) { return {{"model", model}, {"batch", batch}}; }

TEST(ActivationCheckpointing, TrainsExactlyAsWithoutOnAHost) {
  const HostCheckingTrial trial(*technique, point("gpt_toy", "equal"));
  const auto& results = trial.results();
  EXPECT_GT(results[0].error, 0);
  EXPECT_LE(results[0].error, results[0].tolerance);
  EXPECT_EQ(results[1].error, results[0].error) << "BF16 with checkpoints is BF16, bit for bit";
  EXPECT_EQ(results[2].error, results[0].error);
  EXPECT_EQ(results[3].error, 0);
  EXPECT_EQ(results[4].arm.name, "fp32_every_block");
  EXPECT_EQ(results[4].error, 0);
  EXPECT_EQ(results[4].tolerance, 0);
}

TEST(ActivationCheckpointing, HasNoLargestBatchOnAHost) {
  EXPECT_THROW(HostCheckingTrial(*technique, point("gpt_toy", "largest")), std::runtime_error);
}

class ActivationCheckpointingOnADevice : public DeviceTest {};

TEST_F(ActivationCheckpointingOnADevice, SavesMemoryTheMoreBlocksItRecomputes) {
  const CheckingTrial trial(*technique, device(), point("resnet50", "equal"));
  const auto bytes = [&](const std::string& arm) { return trial.results().at(arm).metrics.at("peak_allocated_bytes"); };
  for (const auto& [name, arm] : trial.results()) EXPECT_LE(arm.error, arm.tolerance) << name;
  EXPECT_LT(bytes("fp32_every_block"), bytes("fp32"));
  EXPECT_LT(bytes("bf16_every_block"), bytes("bf16_selective"));
  EXPECT_LT(bytes("bf16_selective"), bytes("bf16"));
}

TEST_F(ActivationCheckpointingOnADevice, TrainsExactlyAsWithoutWhereKernelsRepeat) {
  const RepeatingKernels repeating;
  const CheckingTrial trial(*technique, device(), point("gpt_toy", "equal"));
  const auto error = [&](const std::string& arm) { return trial.results().at(arm).error; };
  EXPECT_EQ(error("fp32"), 0);
  EXPECT_EQ(error("fp32_every_block"), 0);
  EXPECT_GT(error("bf16"), 0);
  EXPECT_EQ(error("bf16_selective"), error("bf16")) << "BF16 with checkpoints is BF16, bit for bit";
  EXPECT_EQ(error("bf16_every_block"), error("bf16"));
}

TEST_F(ActivationCheckpointingOnADevice, TakesALargerBatchThatAnEarlierLaunchFound) {
  std::map<std::string, std::string> known;
  for (const std::string& arm : technique->arms)
    known["largest_batch_" + arm] = arm == "bf16_every_block" ? "32" : "16";
  const CheckingTrial trial(*technique, device(), point("resnet50", "largest"), known);
  EXPECT_EQ(trial.results().at("fp32").cost.items, 16);
  EXPECT_EQ(trial.results().at("bf16_every_block").cost.items, 32);
  EXPECT_LE(trial.results().at("bf16_every_block").error, 0.01);
}

}  // namespace
}  // namespace gpulift
