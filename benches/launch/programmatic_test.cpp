#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/dependent_chain.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using Programmatic = DeviceTest;

TEST_F(Programmatic, EveryArmKeepsTheOrderOfTheChain) {
  const CheckingTrial trial(*technique, device(), {{"kernel_us", std::int64_t{2}}});
  for (const auto& [name, arm] : trial.results()) {
    const bool programmatic = name.starts_with("programmatic");
    EXPECT_EQ(arm.unavailable, programmatic ? why_no_programmatic_launch(device().architecture()) : "") << name;
    EXPECT_EQ(arm.error, 0) << name;
  }
}

}  // namespace
}  // namespace gpulift
