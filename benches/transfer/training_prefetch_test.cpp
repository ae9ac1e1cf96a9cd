#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class TrainingPrefetch : public DeviceTest {};

TEST_F(TrainingPrefetch, EveryStepCopiesItsImagesAndLabels) {
  const CheckingTrial trial(*technique, device(), {{"model", "resnet18"}});
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_EQ(arm.metrics.at("copied_bytes_per_step"), 64 * (3 * 32 * 32 * 4 + 8)) << name;
  }
}

}  // namespace
}  // namespace gpulift
