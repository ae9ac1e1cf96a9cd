#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using BatchedCopies = DeviceTest;

TEST_F(BatchedCopies, EveryArmPutsEveryPieceInItsPlace) {
  for (const std::int64_t pieces : {1, 3, 256}) {
    const CheckingTrial trial(*technique, device(), {{"pieces", pieces}, {"piece_bytes", std::int64_t{4096}}});
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_EQ(arm.error, 0) << name << ", pieces: " << pieces;
      EXPECT_EQ(arm.cost.bytes, static_cast<double>(pieces * 4096)) << name;
      EXPECT_EQ(arm.cost.items, static_cast<double>(pieces)) << name;
    }
  }
}

}  // namespace
}  // namespace gpulift
