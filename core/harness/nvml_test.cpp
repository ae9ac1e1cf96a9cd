#include "nvml.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

namespace gpulift {
namespace {

std::string reason(const std::string& card, const std::string& library) {
  const auto opened = Nvml::open(card, library);
  return std::holds_alternative<std::string>(opened) ? std::get<std::string>(opened) : "opened";
}

/// True for the stand-in of builds without CUDA or nvml.h.
bool built_without_nvml() { return reason("", "no-such-library.so") == "built without CUDA or nvml.h"; }

TEST(Nvml, SaysThatThereIsNoDriver) {
  if (built_without_nvml()) GTEST_SKIP() << "built without CUDA or nvml.h";
  EXPECT_EQ(reason("0000:01:00.0", "no-such-library.so"), "no NVIDIA driver: no-such-library.so cannot be opened");
}

TEST(Nvml, RefusesALibraryThatIsNotNvml) {
  if (built_without_nvml()) GTEST_SKIP() << "built without CUDA or nvml.h";
  EXPECT_EQ(reason("0000:01:00.0", "libc.so.6"), "the NVIDIA driver's library lacks nvmlShutdown");
}

class NvmlOnACard : public testing::Test {
 protected:
  void SetUp() override {
    std::error_code none;
    for (const auto& card : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none)) {
      const auto opened = Nvml::open(card.path().filename());
      if (std::holds_alternative<Nvml>(opened)) {
        card_ = std::get<Nvml>(opened);
        return;
      }
    }
    GTEST_SKIP() << "no NVIDIA GPU that NVML can open";
  }

  const Nvml& card() const { return card_.value(); }

 private:
  std::optional<Nvml> card_;
};

TEST_F(NvmlOnACard, GivesFactsThatMakeSense) {
  const auto facts = card().facts();
  EXPECT_FALSE(facts.name.empty());
  EXPECT_FALSE(facts.driver.empty());
  EXPECT_TRUE(facts.uuid.starts_with("GPU-")) << facts.uuid;
  ASSERT_TRUE(facts.max_sm_clock_hz);
  EXPECT_GT(*facts.max_sm_clock_hz, 2e8);
  EXPECT_LT(*facts.max_sm_clock_hz, 1e10);
}

TEST_F(NvmlOnACard, FindsTheSameCardByItsUuid) {
  const auto uuid = card().facts().uuid;
  const auto again = Nvml::open(uuid);
  ASSERT_TRUE(std::holds_alternative<Nvml>(again)) << std::get<std::string>(again);
  EXPECT_EQ(std::get<Nvml>(again).facts().uuid, uuid);
}

TEST_F(NvmlOnACard, SamplesClocksAndGrowingEnergy) {
  const auto first = card().sample();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto second = card().sample();
  EXPECT_GT(second.time_s, first.time_s);
  ASSERT_TRUE(first.sm_clock_hz);
  EXPECT_LE(*first.sm_clock_hz, card().facts().max_sm_clock_hz.value_or(1e10));
  if (!first.energy_j || !second.energy_j) GTEST_SKIP() << "the card has no energy counter";
  EXPECT_GT(*second.energy_j, *first.energy_j);
}

TEST_F(NvmlOnACard, ActivitiesAreFractions) {
  const auto take = card().sampling();
  take();
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  const auto sample = take();
  if (!sample.sm_activity) GTEST_SKIP() << "the card does not count activities, or the driver does not permit it";
  for (const auto activity : {sample.sm_activity, sample.tensor_activity, sample.dram_activity}) {
    EXPECT_GE(activity.value_or(0), 0);
    EXPECT_LE(activity.value_or(0), 1);
  }
  EXPECT_GE(sample.pcie_rx_bytes_per_s.value_or(0), 0);
}

TEST_F(NvmlOnACard, HealthMakesSense) {
  const auto health = card().health();
  EXPECT_EQ(health.facts.uuid, card().facts().uuid);
  ASSERT_TRUE(health.memory);
  EXPECT_GT(health.memory->free_bytes, 0U);
  EXPECT_LE(health.memory->free_bytes + health.memory->used_bytes, health.memory->total_bytes);
  EXPECT_LE(health.min_power_limit_w.value_or(0), health.max_power_limit_w.value_or(1e9));
  EXPECT_LE(health.now.temperature_c.value_or(0), health.shutdown_temperature_c.value_or(1e9));
}

TEST_F(NvmlOnACard, RefusesAnUnknownCardWithTheReasonOfNvml) {
  EXPECT_TRUE(reason("GPU-00000000-0000-0000-0000-000000000000", "libnvidia-ml.so.1").starts_with("NVML: GPU-0000"));
}

}  // namespace
}  // namespace gpulift
