#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "core/testing/host_checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

Point point(const std::string& model, std::int64_t batch) { return {{"model", model}, {"batch", batch}}; }

TEST(SizeSweep, EachArmIsCheckedAtItsOwnBatchAndCountsIt) {
  const HostCheckingTrial trial(*technique, point("resnet18", 7));
  for (const auto& result : trial.results()) EXPECT_LE(result.error, result.tolerance) << result.arm.name;
  const Cost smallest = trial.results()[0].arm.cost.value();
  const Cost batch = trial.results()[1].arm.cost.value();
  EXPECT_EQ(smallest.items, 4);
  EXPECT_EQ(batch.items, 7);
  EXPECT_EQ(batch.item, "image");
  EXPECT_DOUBLE_EQ(batch.flops / smallest.flops, 7.0 / 4.0);
}

TEST(SizeSweep, HasARecurrentModelThatAHostCanTrain) {
  const HostCheckingTrial trial(*technique, point("lstm_toy", 31));
  for (const auto& result : trial.results()) EXPECT_LE(result.error, result.tolerance) << result.arm.name;
  EXPECT_EQ(trial.results()[1].arm.cost->items / trial.results()[0].arm.cost->items, 31);
}

TEST(SizeSweep, ChecksABatchInPartsOrWithRecomputationAsTheWholeWouldBe) {
  // 2048 rows are checked in two parts, and a ResNet's images all at once, since its norms see them all.
  for (const auto& [model, batch] : {std::pair("lstm_toy", 2048), std::pair("resnet18", 64)}) {
    const HostCheckingTrial trial(*technique, point(model, batch), HostCheckingTrial::Steps::kThree);
    EXPECT_LE(trial.results()[1].error, 1e-5) << model;
    EXPECT_GT(trial.results()[1].later_error, trial.results()[1].tolerance) << model;
  }
}

TEST(SizeSweep, SkipsWhatAMachineWithoutAGpuOrTheModelCannotTrain) {
  for (const Point& skipped : {point("gpt2", 1), point("resnet18", 3), point("resnet18", 1024)}) {
    EXPECT_THROW(HostCheckingTrial(*technique, skipped), std::runtime_error);
  }
}

using SizeSweepOnDevice = DeviceTest;

TEST_F(SizeSweepOnDevice, TrainsAnyBatchOnTheDevice) {
  for (const auto& [model, batch] : {std::pair("resnet50", 3), std::pair("lstm", 7), std::pair("resnet18", 31)}) {
    const CheckingTrial trial(*technique, device(), point(model, batch));
    for (const auto& [name, arm] : trial.results()) EXPECT_LE(arm.error, arm.tolerance) << model << " " << name;
  }
}

}  // namespace
}  // namespace gpulift
