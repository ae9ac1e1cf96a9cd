#include <gtest/gtest.h>

#include <numeric>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/gpt_tensors.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(GptTensors, AreThoseOfGpt2) {
  const std::vector<std::size_t> counts = gpt_tensors("gpt2");
  EXPECT_EQ(counts.size(), 148);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), 124'475'904) << "with the head tied";
  EXPECT_EQ(gpt_tensors("small").size(), 52);
  for (const char* model : {"gpt2", "small"}) {
    for (const std::size_t count : gpt_tensors(model)) EXPECT_EQ(count % 8, 0) << "whole packs, one behind another";
  }
}

class FusedAdamW : public DeviceTest {};

TEST_F(FusedAdamW, BothArmsStepEveryTensorAsDoublePrecisionDoes) {
  CheckingTrial trial(device(), {{"model", "small"}});
  technique->run(trial);
  ASSERT_EQ(trial.results().size(), 2);
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_LE(arm.error, arm.tolerance) << name;
    EXPECT_GT(arm.error, 0) << "FP32 and BF16 round: " << name;
    EXPECT_EQ(arm.cost.bytes, 28.0 * 875'264) << name;
    EXPECT_EQ(arm.cost.roof, "") << name << " finds its data in the cache";
    EXPECT_EQ(arm.peak_device_bytes, 0) << name << " owns no memory: both share the case's";
  }
}

}  // namespace
}  // namespace gpulift
