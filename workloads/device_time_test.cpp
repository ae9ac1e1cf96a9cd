#include "workloads/device_time.hpp"

#include "kernels/device_test.hpp"
#include "kernels/spin.hpp"

namespace gpulift {
namespace {

class DeviceTime : public DeviceTest {};

TEST_F(DeviceTime, CyclesGrowWithTime) {
  EXPECT_EQ(cycles_in(device(), 0), 0);
  EXPECT_GT(cycles_in(device(), 1e-6), 100) << "no device that this project knows runs below 100 MHz at its highest";
  EXPECT_NEAR(static_cast<double>(cycles_in(device(), 2e-3)), 2.0 * static_cast<double>(cycles_in(device(), 1e-3)), 2);
}

TEST_F(DeviceTime, CalibrationSeesTheLengthOfTheWork) {
  constexpr double kAskedS = 5e-3;
  const double measured_s =
      calibrate_s([&](cudaStream_t s) { spin(cycles_in(device(), kAskedS), nullptr, s); }, stream());
  EXPECT_GE(measured_s, 0.99 * kAskedS) << "a multiprocessor never runs above its highest clock";
}

}  // namespace
}  // namespace gpulift
