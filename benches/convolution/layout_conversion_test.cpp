#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(ConvolutionLayoutConversion, HasACaseBoundByLaunchesAndOneBoundByMemory) {
  const auto bytes_of = [](std::size_t value) {
    const auto images = std::get<std::int64_t>(technique->sweep.at(0).values.at(value));
    const auto side = std::get<std::int64_t>(technique->sweep.at(1).values.at(value));
    return images * 256 * side * side * 2;
  };
  EXPECT_LT(bytes_of(0), 1 << 20);
  EXPECT_GT(bytes_of(1), 64 << 20);
}

using ConvolutionLayoutConversionOnDevice = DeviceTest;

TEST_F(ConvolutionLayoutConversionOnDevice, BothArmsDeliverEveryByteAndNeedNoMemory) {
  for (const std::int64_t side : {7, 14, 56}) {
    const CheckingTrial trial(*technique, device(), {{"images", std::int64_t{3}}, {"side", side}});
    for (const auto& [name, arm] : trial.results()) {
      EXPECT_EQ(arm.error, 0) << name << " " << side;
      EXPECT_EQ(arm.cost.bytes, 2.0 * 3 * 256 * 2 * static_cast<double>(side * side)) << name;
      EXPECT_EQ(arm.cost.roof, "") << name << " finds its data in the cache";
      EXPECT_EQ(arm.peak_device_bytes, 0) << name;
    }
  }
}

}  // namespace
}  // namespace gpulift
