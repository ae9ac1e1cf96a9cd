#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class CudaGraph : public DeviceTest {};

TEST_F(CudaGraph, ReplayRunsEveryKernelThatWasRecorded) {
  for (const std::int64_t kernels : {10, 1000}) {
    const CheckingTrial trial(*technique, device(), {{"kernel_us", std::int64_t{2}}, {"kernels", kernels}});
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_EQ(arm.error, 0) << name;
      EXPECT_EQ(arm.cost.items, kernels) << name;
    }
  }
}

}  // namespace
}  // namespace gpulift
