#include <gtest/gtest.h>

#include <numeric>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/model_tensors.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(ModelTensors, AreThoseOfTheModels) {
  const std::vector<std::size_t> counts = model_tensors("gpt2");
  EXPECT_EQ(counts.size(), 148);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), 124'475'904) << "with the head tied";
  const std::vector<std::size_t> layer = model_tensors("llama_8b_layer");
  EXPECT_EQ(layer.size(), 9);
  EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), std::size_t{0}), 218'112'000);
  EXPECT_EQ(model_tensors("small").size(), 52);
  for (const char* model : {"gpt2", "llama_8b_layer", "small"}) {
    for (const std::size_t count : model_tensors(model)) EXPECT_EQ(count % 8, 0) << "whole packs, one behind another";
  }
}

class FusedAdamW : public DeviceTest {};

TEST_F(FusedAdamW, OneLaunchStepsEveryTensorAsDoublePrecisionDoes) {
  const CheckingTrial trial(*technique, device(), {{"model", "small"}});
  const auto& arm = trial.results().at("one_launch");
  EXPECT_LE(arm.error, arm.tolerance);
  EXPECT_GT(arm.error, 0) << "FP32 and BF16 round";
  EXPECT_EQ(arm.cost.bytes, 28.0 * 875'264);
  EXPECT_EQ(arm.cost.roof, "") << "the cache has its data";
  EXPECT_EQ(arm.peak_device_bytes, 0) << "it owns no memory beside the case's";
}

}  // namespace
}  // namespace gpulift
