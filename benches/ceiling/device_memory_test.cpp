#include <cmath>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using DeviceMemory = DeviceTest;

TEST_F(DeviceMemory, EveryArmMovesTheFootprintOnce) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 24;  // not a multiple of three arrays of whole vectors
  const CheckingTrial trial(*technique, device(), {{"bytes", kBytes}});
  for (const auto& [name, arm] : trial.results()) {
    EXPECT_LE(arm.cost.bytes, kBytes) << name;
    EXPECT_GT(arm.cost.bytes, kBytes - 3 * 16) << name;
    EXPECT_EQ(arm.peak_device_bytes, 0) << name << " owns no memory: all arms share the case's";
  }
  EXPECT_EQ(trial.results().at("triad").cost.bytes, 12 * (kBytes / 4 / 3 / 4 * 4));
}

TEST_F(DeviceMemory, TriadCheckFindsOneMissingElement) {
  // A sum over n terms hides what is below the tolerance times the root of n: for the largest case, 7e8 elements, 0.3.
  const double largest = static_cast<double>(std::get<std::int64_t>(technique->sweep.at(0).values.back())) / 12;
  const CheckingTrial trial(*technique, device(), {{"bytes", std::int64_t{1} << 24}});
  EXPECT_LT(trial.results().at("triad").tolerance * std::sqrt(largest), 0.5);
}

}  // namespace
}  // namespace gpulift
