// Against a library that stands in for the driver's: see nvml_fake.cpp.
#include <gtest/gtest.h>

#include "nvml.hpp"

namespace gpulift {
namespace {

Nvml opened(const std::string& card) {
  const auto found = Nvml::open(card, GPULIFT_FAKE_NVML);
  if (std::holds_alternative<std::string>(found)) throw std::runtime_error(std::get<std::string>(found));
  return std::get<Nvml>(found);
}

GpuHealth health_of(const std::string& card) { return opened(card).health(); }

TEST(NvmlFacts, HaveTheLinksToTheHostsProcessor) {
  EXPECT_TRUE(health_of("0000:01:00.0").facts.has_c2c);
  EXPECT_FALSE(health_of("0000:02:00.0").facts.has_c2c);
}

TEST(NvmlSample, KnowsTheThrottleReasonsOnlyOfACardThatAnswers) {
  EXPECT_EQ(opened("0000:01:00.0").sample().throttle_reasons, 0x4U);
  EXPECT_EQ(opened("0000:02:00.0").sample().throttle_reasons, std::nullopt);
}

TEST(NvmlHealth, HasWhatTheCardAnswers) {
  const auto json = health_json(health_of("0000:01:00.0"));
  EXPECT_EQ(json, nlohmann::ordered_json::parse(R"({
    "ecc": {"enabled": true, "pending": false, "corrected_volatile": 0, "uncorrected_volatile": 10,
            "corrected_aggregate": 1, "uncorrected_aggregate": 11},
    "row_remapping": {"correctable": 3, "uncorrectable": 2, "pending": false, "failure": true},
    "pcie": {"replays": 12},
    "nvlinks": [{"link": 0, "active": true, "version": 4, "errors": 400}, {"link": 1, "active": false}],
    "power": {"min_limit_w": 200.0, "max_limit_w": 700.0},
    "throttle": ["sw_power_cap"],
    "temperature": {"slowdown_c": 92.0, "shutdown_c": 95.0},
    "memory": {"total_bytes": 100, "free_bytes": 70, "used_bytes": 20, "reserved_bytes": 10},
    "processes": [{"pid": 1, "used_bytes": 4096}, {"pid": 2}],
    "persistence_mode": true,
    "compute_mode": "exclusive"
  })"));
}

TEST(NvmlHealth, IsEmptyForACardThatAnswersNothing) {
  EXPECT_EQ(health_json(health_of("0000:02:00.0")), nlohmann::ordered_json::object());
}

TEST(NvmlHealth, ACardThatIsNotThereIsRefusedWithTheReasonOfTheLibrary) {
  const auto opened = Nvml::open("0000:03:00.0", GPULIFT_FAKE_NVML);
  ASSERT_TRUE(std::holds_alternative<std::string>(opened));
  EXPECT_EQ(std::get<std::string>(opened), "NVML: 0000:03:00.0: some error");
}

}  // namespace
}  // namespace gpulift
