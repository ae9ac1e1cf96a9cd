#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/allocation_trace.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class DeviceMalloc : public DeviceTest, public testing::WithParamInterface<std::string> {};

TEST_P(DeviceMalloc, ArmsHoldWhatLivesAndLeaveNothingBehind) {
  const bool training = GetParam() == "training";
  const AllocationTrace trace = training ? gpt_training_trace({}) : single_block_trace(std::size_t{1} << 20);
  if (device().free_bytes() < 2 * trace.total_bytes(512)) GTEST_SKIP() << "too little free device memory";
  const CheckingTrial trial(*technique, device(), {{"trace", GetParam()}});
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_GE(arm.peak_device_bytes, trace.peak_bytes()) << name;
  }
  EXPECT_EQ(device().memory().live_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Traces, DeviceMalloc, testing::Values("training", "trivial"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace gpulift
