#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "core/testing/host_checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

Point point(const std::string& model, std::int64_t tokens) { return {{"model", model}, {"tokens", tokens}}; }

TEST(Sdpa, EveryFormThatAHostHasIsTheOneThatRan) {
  const HostCheckingTrial trial(*technique, point("gpt_toy", 64));
  const bool in_bf16 = !trial.notes().contains("computed_in");
  for (const auto& result : trial.results()) {
    const std::string& name = result.arm.name;
    if (name == "memory_efficient" || name == "cudnn") {
      EXPECT_FALSE(result.arm.unavailable.empty()) << name;
      EXPECT_EQ(result.not_made, result.arm.unavailable) << name;
      continue;
    }
    EXPECT_EQ(result.arm.cost->roof, in_bf16 ? "host_gemm/bf16" : "host_gemm/fp32") << name;
    if (in_bf16) {
      EXPECT_GT(result.error, 0) << name << ": BF16 is not FP32";
    }
    const Step step = result.arm.make().step();
    EXPECT_EQ(result.arm.metrics(step, nullptr).at(name + "_attention_layers"), 4) << name;
  }
}

TEST(Sdpa, CountsOfAttentionTheHalfThatIsNotMasked) {
  const HostCheckingTrial trial(*technique, point("gpt_toy", 64));
  EXPECT_EQ(trial.trial_cost().items, 64);
  EXPECT_EQ(trial.trial_cost().flops, 3.0 * 64 * (4 * (24 * 64 * 64 + 2 * 64 * 64) + 2 * 64 * 64));
}

class SdpaOnADevice : public DeviceTest {};

TEST_F(SdpaOnADevice, FusedFormsKeepNoScores) {
  const CheckingTrial trial(*technique, device(), point("gpt_toy", 2048));
  const auto& results = trial.results();
  for (const auto& [name, arm] : results) {
    if (!arm.unavailable.empty()) continue;
    EXPECT_EQ(arm.metrics.at(name + "_attention_layers"), 4) << name;
  }
  // 4 layers of 4 heads with 2048 x 2048 scores of 6 bytes: 400 MB.
  const double explicit_bytes = results.at("explicit").metrics.at("peak_allocated_bytes");
  EXPECT_GT(explicit_bytes, 4e8);
  EXPECT_LT(results.at("memory_efficient").metrics.at("peak_allocated_bytes"), explicit_bytes / 4);
}

}  // namespace
}  // namespace gpulift
