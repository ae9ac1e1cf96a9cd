#include "spin_cost.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>

namespace gpulift {
namespace {

constexpr std::int64_t kSpins = 64;

/// A device whose clock climbs from idle while it is loaded.
struct RampingDevice {
  double launch_s = 2e-6;
  double idle_hz = 0.3e9;
  double top_hz = 1.9e9;
  double ramp_s = 0.05;
  bool tells_clock = true;
  double spun_s = 0;
  double last_hz = 0;  // of the last window

  Window run(std::uint64_t cycles) {
    const double hz = std::min(top_hz, idle_hz + (top_hz - idle_hz) * spun_s / ramp_s);
    Window window;
    window.device_s = static_cast<double>(kSpins) * (launch_s + static_cast<double>(cycles) / hz);
    if (tells_clock) window.sm_clock_hz = hz;
    spun_s += *window.device_s;
    last_hz = hz;
    return window;
  }
  SpinCost measure() {
    return measure_spin_cost([this](std::uint64_t cycles) { return run(cycles); }, kSpins);
  }
};

TEST(SpinCost, IsTheLaunchAndTheClockOfASteadyDevice) {
  RampingDevice device{.idle_hz = 1.9e9};
  const SpinCost cost = device.measure();
  EXPECT_NEAR(cost.launch_s, 2e-6, 1e-12);
  EXPECT_NEAR(cost.clock_hz, 1.9e9, 1);
}

class Ramp : public testing::TestWithParam<bool> {};

TEST_P(Ramp, IsWaitedFor) {
  RampingDevice device{.tells_clock = GetParam()};
  const SpinCost cost = device.measure();
  EXPECT_NEAR(cost.launch_s, 2e-6, 1e-12);
  EXPECT_NEAR(cost.clock_hz, 1.9e9, 1);
}

INSTANTIATE_TEST_SUITE_P(Clocks, Ramp, testing::Bool(),
                         [](const auto& told) { return std::string(told.param ? "Told" : "NotTold"); });

TEST(SpinCost, AClockThatNeverGetsFlatMeetsBothLengthsAlike) {
  RampingDevice device{.top_hz = 19e9, .ramp_s = 5};  // 0.1 % from window to window when it is measured
  const SpinCost cost = device.measure();
  EXPECT_LT(device.spun_s, 0.5) << "the warm-up has a limit";
  EXPECT_NEAR(cost.launch_s, 2e-6, 0.1e-6);
  EXPECT_NEAR(cost.clock_hz, device.last_hz, 0.1 * device.last_hz) << "it climbs by a tenth meanwhile";
}

TEST(SpinCost, IsNeverNegative) {
  RampingDevice device{.launch_s = -1e-7, .idle_hz = 1.9e9};
  EXPECT_EQ(device.measure().launch_s, 0);
}

class UselessTimes : public testing::TestWithParam<double> {};

TEST_P(UselessTimes, AreAnError) {
  const auto run = [](std::uint64_t) {
    Window window;
    window.device_s = GetParam();
    return window;
  };
  EXPECT_THAT([&] { measure_spin_cost(run, kSpins); },
              testing::ThrowsMessage<std::runtime_error>(testing::HasSubstr("cannot be measured out")));
}

INSTANTIATE_TEST_SUITE_P(Times, UselessTimes, testing::Values(0.0, 1e-3));

}  // namespace
}  // namespace gpulift
