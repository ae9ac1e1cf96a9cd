#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "core/testing/host_checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

Point point(const std::string& model, const std::string& precision) {
  return {{"model", model}, {"precision", precision}};
}

TEST(ChannelsLast, SkipsWhatAMachineWithoutAGpuCannotTrain) {
  for (const Point& skipped : {point("resnet18", "fp16"), point("resnet50", "tf32")}) {
    EXPECT_THROW(HostCheckingTrial(*technique, skipped), std::runtime_error);
  }
}

TEST(ChannelsLast, SaysOfAHostThatItComputesInFp32) {
  const HostCheckingTrial trial(*technique, point("resnet18", "tf32"));
  for (const auto& result : trial.results()) EXPECT_LE(result.error, result.tolerance) << result.arm.name;
  EXPECT_TRUE(trial.notes().at("computed_in").starts_with("fp32"));
}

using ChannelsLastOnDevice = DeviceTest;

TEST_F(ChannelsLastOnDevice, CudnnConvertsOnlyTheContiguousLayout) {
  const CheckingTrial trial(*technique, device(), point("resnet50", "fp16"));
  const auto& contiguous = trial.results().at("contiguous");
  const auto& channels_last = trial.results().at("channels_last");
  EXPECT_LE(contiguous.error, contiguous.tolerance);
  EXPECT_LE(channels_last.error, channels_last.tolerance);
  EXPECT_GT(contiguous.metrics.at("layout_kernels_per_step"), 0);
  EXPECT_EQ(channels_last.metrics.at("layout_kernels_per_step"), 0);
  EXPECT_EQ(channels_last.metrics.at("layout_copies_per_step"), 0);
}

}  // namespace
}  // namespace gpulift
