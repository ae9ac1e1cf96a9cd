#include "telemetry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

namespace gpulift {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

/// A card that gives the samples of a script one after the other and repeats the last; the moment of a sample is its
/// place in the script.
class ScriptedCard {
 public:
  explicit ScriptedCard(std::vector<GpuSample> script) : script_(std::move(script)) {
    for (std::size_t i = 0; i < script_.size(); ++i) script_[i].time_s = static_cast<double>(i);
  }

  std::function<GpuSample()> source() {
    return [this] {
      const auto at = taken_++;
      if (at < script_.size()) return script_[at];
      auto late = script_.back();
      late.time_s = static_cast<double>(at);
      return late;
    };
  }

  void wait_until_played() const {
    while (taken_ <= script_.size()) std::this_thread::yield();  // one more: the last one is then stored
  }

 private:
  std::vector<GpuSample> script_;
  std::atomic<std::size_t> taken_ = 0;
};

GpuSample with_clock(double hz) {
  GpuSample sample;
  sample.sm_clock_hz = hz;
  return sample;
}

GpuSample with_energy(double joules) {
  GpuSample sample;
  sample.energy_j = joules;
  return sample;
}

GpuSample with_temperature(double celsius) {
  GpuSample sample;
  sample.temperature_c = celsius;
  return sample;
}

GpuSample throttled(unsigned long long reasons) {
  GpuSample sample;
  sample.throttle_reasons = reasons;
  return sample;
}

TEST(Telemetry, SummarisesOnlyTheSamplesOfTheInterval) {
  ScriptedCard card({with_clock(9e9), with_clock(1e9), with_clock(3e9), with_clock(2e9), with_clock(9e9)});
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  const auto summary = telemetry.summary(1, 3);
  EXPECT_EQ(summary.at("samples"), 3);
  EXPECT_EQ(summary.at("interval_s"), 1e-4);
  EXPECT_EQ(summary.at("sm_clock_hz"), (nlohmann::ordered_json{{"min", 1e9}, {"median", 2e9}, {"max", 3e9}}));
}

TEST(Telemetry, WhatTheCardDoesNotGiveIsAbsent) {
  ScriptedCard card({with_clock(1e9), with_clock(1e9)});
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  const auto summary = telemetry.summary(0, 1);
  for (const auto* key : {"memory_clock_hz", "power_w", "temperature_c", "gpu_utilisation", "energy_j", "throttle",
                          "pcie_generation", "pcie_width"}) {
    EXPECT_FALSE(summary.contains(key)) << key;
  }
}

TEST(Telemetry, ActivitiesComeFromTheSamplesThatHaveThem) {
  std::vector<GpuSample> script(4);
  script[1].tensor_activity = 0.5;
  script[1].nvlink_tx_bytes_per_s = 2e9;
  script[3].tensor_activity = 0.75;
  script[3].nvlink_tx_bytes_per_s = 1e9;
  ScriptedCard card(script);
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  const auto summary = telemetry.summary(0, 3);
  EXPECT_EQ(summary.at("samples"), 4);
  EXPECT_EQ(summary.at("tensor_activity"), (nlohmann::ordered_json{{"min", 0.5}, {"median", 0.75}, {"max", 0.75}}));
  EXPECT_EQ(summary.at("nvlink_tx_bytes_per_s"), (nlohmann::ordered_json{{"min", 1e9}, {"median", 2e9}, {"max", 2e9}}));
  EXPECT_FALSE(summary.contains("sm_activity"));
}

TEST(Telemetry, AnIntervalWithoutSamplesSaysSo) {
  ScriptedCard card({with_clock(1e9)});
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  const auto summary = telemetry.summary(-2, -1);
  EXPECT_EQ(summary.at("samples"), 0);
  EXPECT_FALSE(summary.contains("sm_clock_hz"));
}

TEST(Telemetry, EnergyIsTheDifferenceOfTheCounter) {
  ScriptedCard card({with_energy(100), with_energy(107), with_energy(120), with_energy(500)});
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  EXPECT_EQ(telemetry.energy_between(0, 2), 20.0);
  EXPECT_EQ(telemetry.summary(1, 2).at("energy_j"), 13.0);
  EXPECT_EQ(telemetry.energy_between(1, 1), std::nullopt) << "one reading has no difference";
}

/// A counter that is sampled once a second and updated every `period` samples by `joules`.
std::vector<GpuSample> counter(std::size_t samples, std::size_t period, double joules) {
  std::vector<GpuSample> script;
  for (std::size_t i = 0; i < samples; ++i) {
    script.push_back(with_energy(1000 + joules * std::floor(static_cast<double>(i) / static_cast<double>(period))));
  }
  return script;
}

TEST(Telemetry, EnergyWithinAWindowIsItsMeanPowerTimesItsLength) {
  ScriptedCard card(counter(100, 1, 7));
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  EXPECT_NEAR(telemetry.energy_within(10.5, 50.25).value_or(0), 7 * 39.75, 1e-9);
}

TEST(Telemetry, EnergyWithinAWindowIsNotThatOfTheCountersJumps) {
  ScriptedCard card(counter(200, 10, 70));
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  // 11 updates in 105 s: the counter's own difference would be 770 J or 700 J, as the window falls.
  EXPECT_NEAR(telemetry.energy_within(8, 113).value_or(0), 7 * 105, 1e-9);
  EXPECT_NEAR(telemetry.energy_within(1, 106).value_or(0), 7 * 105, 1e-9);
}

TEST(Telemetry, EnergyWithinAWindowHasNoPartOfWhatRanBeforeAndAfter) {
  auto script = counter(30, 1, 500);
  for (int i = 0; i < 40; ++i) script.push_back(with_energy(*script.back().energy_j + 7));
  for (int i = 0; i < 30; ++i) script.push_back(with_energy(*script.back().energy_j + 500));
  ScriptedCard card(script);
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  EXPECT_NEAR(telemetry.energy_within(29.5, 69.5).value_or(0), 7 * 40, 1e-9);
}

TEST(Telemetry, AWindowThatTheCounterDoesNotResolveHasNoEnergy) {
  ScriptedCard slow(counter(200, 10, 70));
  const Telemetry telemetry(slow.source(), 1e-4);
  slow.wait_until_played();
  EXPECT_TRUE(telemetry.energy_within(5, 85)) << "updates at 10, 20 to 80: eight";
  EXPECT_FALSE(telemetry.energy_within(5, 79)) << "seven";
  ScriptedCard fast(counter(200, 1, 7));
  const Telemetry sampled_as_fast(fast.source(), 1e-4);
  fast.wait_until_played();
  EXPECT_TRUE(sampled_as_fast.energy_within(10, 30)) << "a second in 20 is 5 %";
  EXPECT_FALSE(sampled_as_fast.energy_within(10, 29)) << "a second in 19 is more";
}

TEST(Telemetry, ACounterThatStandsStillOrWasResetOrIsAbsentHasNoEnergy) {
  ScriptedCard still(counter(100, 1000, 7));
  const Telemetry standing(still.source(), 1e-4);
  still.wait_until_played();
  EXPECT_FALSE(standing.energy_within(10, 90));
  auto script = counter(50, 1, 7);
  for (auto& sample : counter(50, 1, 7)) script.push_back(with_energy(*sample.energy_j - 900));
  ScriptedCard reset(script);
  const Telemetry began_anew(reset.source(), 1e-4);
  reset.wait_until_played();
  EXPECT_FALSE(began_anew.energy_within(10, 90));
  ScriptedCard none(std::vector<GpuSample>(100, with_clock(1e9)));
  const Telemetry without(none.source(), 1e-4);
  none.wait_until_played();
  EXPECT_FALSE(without.energy_within(10, 90));
}

TEST(Telemetry, TheFirstReadingOfAllIsNoUpdate) {
  ScriptedCard card(counter(100, 10, 70));
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  EXPECT_FALSE(telemetry.energy_within(-1, 75)) << "updates at 10 to 70: seven";
}

TEST(Telemetry, TheSlopeOfTheTemperatureIsThatOfTheBestLine) {
  std::vector<GpuSample> script{with_temperature(90)};  // before the interval
  for (int i = 0; i < 12; ++i) script.push_back(with_temperature(40 + 0.5 * i + (i % 2 == 0 ? 1 : -1)));
  ScriptedCard card(script);
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  // The line through y = x / 2 + 1, -1, 1, ... at x = 0 to 11: the alternation adds -6 / 143.
  EXPECT_NEAR(telemetry.summary(1, 12).at("temperature_slope_c_per_s"), 0.5 - 6.0 / 143, 1e-9);
  EXPECT_NEAR(telemetry.summary(1, 10).at("temperature_slope_c_per_s"), 0.5 - 5.0 / 82.5, 1e-9) << "10 samples";
  EXPECT_FALSE(telemetry.summary(1, 9).contains("temperature_slope_c_per_s")) << "9 samples";
}

TEST(Telemetry, AShortTimeOrNoTemperatureHasNoSlope) {
  std::vector<GpuSample> script;
  for (int i = 0; i < 12; ++i) script.push_back(i % 2 == 0 ? with_temperature(40) : with_clock(1e9));
  ScriptedCard card(script);
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  EXPECT_FALSE(telemetry.summary(0, 11).contains("temperature_slope_c_per_s")) << "6 of 12 samples have one";
  std::atomic<int> taken = 0;
  const Telemetry quick(
      [&taken] {
        GpuSample sample = with_temperature(40);
        sample.time_s = 0.1 * std::min(++taken, 10);  // 10 samples at 0.1 to 1.0 s, and more at 1.0
        return sample;
      },
      1e-4);
  while (taken < 12) std::this_thread::yield();
  EXPECT_FALSE(quick.summary(0, 1).contains("temperature_slope_c_per_s")) << "over 0.9 s";
}

TEST(Telemetry, ThrottleReasonsOfAnIntervalAreJoined) {
  ScriptedCard card({throttled(0), throttled(0x4), throttled(0x40), throttled(0x80)});
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  EXPECT_EQ(telemetry.summary(0, 2).at("throttle"), (nlohmann::ordered_json{"sw_power_cap", "hw_thermal_slowdown"}));
}

TEST(Telemetry, NothingThatThrottlesIsAnAnswer) {
  ScriptedCard card({throttled(0), with_clock(1e9)});
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  EXPECT_EQ(telemetry.summary(0, 1).at("throttle"), nlohmann::ordered_json::array());
  EXPECT_FALSE(telemetry.summary(1, 1).contains("throttle"));
}

TEST(Telemetry, SamplesThatDoNotKnowAddNoThrottleReasons) {
  ScriptedCard card({throttled(0x4), with_clock(1e9), throttled(0x40)});
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  EXPECT_EQ(telemetry.summary(0, 2).at("throttle"), (nlohmann::ordered_json{"sw_power_cap", "hw_thermal_slowdown"}));
  EXPECT_EQ(telemetry.throttle_between(0.5, 2), 0x44U);
  EXPECT_EQ(telemetry.throttle_between(1, 1.5), 0x4U) << "of the sample before";
}

TEST(Telemetry, AnIntervalBetweenTwoSamplesHasTheStateInWhichItBegan) {
  ScriptedCard card({throttled(0x4), throttled(0x40), throttled(0)});
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  EXPECT_EQ(telemetry.throttle_between(1.2, 1.3), 0x40U);
  EXPECT_EQ(telemetry.throttle_between(0.5, 1.5), 0x44U);
}

TEST(Telemetry, TheLinkIsReportedAtItsFastest) {
  GpuSample idle;
  idle.pcie_generation = 1;
  idle.pcie_width = 16;
  GpuSample busy = idle;
  busy.pcie_generation = 5;
  ScriptedCard card({idle, busy, idle});
  const Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  EXPECT_EQ(telemetry.summary(0, 2).at("pcie_generation"), 5);
  EXPECT_EQ(telemetry.summary(0, 2).at("pcie_width"), 16);
}

TEST(Telemetry, ForgettingKeepsTheStateOfTheMoment) {
  ScriptedCard card({throttled(0x4), throttled(0x40), throttled(0), throttled(0x80)});
  Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  telemetry.forget_before(1.5);
  EXPECT_EQ(telemetry.summary(0, 2).at("samples"), 2) << "the sample at 0 is gone, the one at 1 holds at 1.5";
  EXPECT_EQ(telemetry.throttle_between(1.5, 1.6), 0x40U);
}

TEST(Telemetry, ForgettingEverythingKeepsTheLatest) {
  ScriptedCard card({with_clock(1e9), with_clock(2e9)});
  Telemetry telemetry(card.source(), 1e-4);
  card.wait_until_played();
  telemetry.forget_before(kForever);
  ASSERT_TRUE(telemetry.latest());
  EXPECT_EQ(telemetry.latest()->sm_clock_hz, 2e9);
}

TEST(Telemetry, EndsAtOnceHoweverLongTheInterval) {
  ScriptedCard card({with_clock(1e9)});
  {
    const Telemetry telemetry(card.source(), 3600);
    while (!telemetry.latest()) std::this_thread::yield();
  }
  SUCCEED() << "an hour's wait would be killed by the test runner";
}

TEST(Telemetry, MayBeReadWhileItSamples) {
  ScriptedCard card(std::vector<GpuSample>(200, with_energy(1)));
  Telemetry telemetry(card.source(), 1e-5);
  std::jthread reader([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) static_cast<void>(telemetry.summary(0, kForever));
  });
  std::jthread cleaner([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) telemetry.forget_before(100);
  });
  card.wait_until_played();
  EXPECT_EQ(telemetry.energy_between(0, kForever), 0.0);
}

}  // namespace
}  // namespace gpulift
