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

TEST(NvmlFacts, CountTheActiveLinksToOtherCards) {
  const auto facts = opened("0000:01:00.0").facts();
  EXPECT_EQ(facts.nvlink_links, 1);
  EXPECT_EQ(facts.nvlink_link_bytes_per_s, 26.562e9);
}

TEST(NvmlFacts, TakeTheSpeedOfAllLinksWhereThatOfOneIsNotKnown) {
  const auto facts = opened("0000:04:00.0").facts();
  EXPECT_EQ(facts.nvlink_links, 2);
  EXPECT_EQ(facts.nvlink_link_bytes_per_s, 25.781e9);
}

TEST(NvmlFacts, ACardWithoutLinksSaysNothingOfThem) {
  const auto facts = opened("0000:02:00.0").facts();
  EXPECT_EQ(facts.nvlink_links, std::nullopt);
  EXPECT_EQ(facts.nvlink_link_bytes_per_s, std::nullopt);
}

TEST(NvmlSample, KnowsTheThrottleReasonsOnlyOfACardThatAnswers) {
  EXPECT_EQ(opened("0000:01:00.0").sample().throttle_reasons, 0x4U);
  EXPECT_EQ(opened("0000:02:00.0").sample().throttle_reasons, std::nullopt);
}

TEST(NvmlSampling, HasActivitiesSinceTheSampleBefore) {
  const auto take = opened("0000:01:00.0").sampling(0);
  EXPECT_EQ(take().sm_activity, std::nullopt) << "there is none before";
  const auto sample = take();
  EXPECT_EQ(sample.throttle_reasons, 0x4U) << "all that sample() has";
  EXPECT_GT(sample.time_s, 0);
  EXPECT_DOUBLE_EQ(sample.tensor_activity.value(), 0.92);
  EXPECT_DOUBLE_EQ(sample.sm_activity.value(), 0.95);
  EXPECT_DOUBLE_EQ(sample.dram_activity.value(), 0.24);
  EXPECT_DOUBLE_EQ(sample.nvjpg_activity.value(), 0.20) << "of the two decoders that answer";
  EXPECT_EQ(sample.pcie_rx_bytes_per_s, 3.0 * 1024 * 1024);
  EXPECT_EQ(sample.pcie_tx_bytes_per_s, 5.0 * 1024 * 1024);
  EXPECT_EQ(sample.nvlink_rx_bytes_per_s, 7.0 * 1024 * 1024);
  EXPECT_EQ(sample.nvlink_tx_bytes_per_s, std::nullopt) << "not counted, which does not spoil the rest";
}

TEST(NvmlSampling, CopiesGoOnTogether) {
  const auto take = opened("0000:01:00.0").sampling(0);
  const auto copy = take;
  take();
  EXPECT_TRUE(copy().sm_activity);
}

TEST(NvmlSampling, DoesNotReadTheCountersAgainBeforeItsInterval) {
  const auto take = opened("0000:01:00.0").sampling(3600);
  take();
  const auto sample = take();
  EXPECT_EQ(sample.sm_activity, std::nullopt);
  EXPECT_EQ(sample.throttle_reasons, 0x4U);
}

TEST(NvmlSampling, HasNoActivitiesOfACardThatDoesNotCountThem) {
  const auto take = opened("0000:02:00.0").sampling(0);
  take();
  const auto sample = take();
  EXPECT_GT(sample.time_s, 0);
  EXPECT_EQ(sample.sm_activity, std::nullopt);
  EXPECT_EQ(sample.nvjpg_activity, std::nullopt);
}

TEST(NvmlSampling, ACallThatFailsCostsActivitiesAndNoSample) {
  const auto take = opened("0000:04:00.0").sampling(0);
  std::vector<bool> has;
  for (int i = 0; i < 6; ++i) {
    const auto sample = take();
    EXPECT_GT(sample.time_s, 0);
    has.push_back(sample.sm_activity.has_value());
  }
  // The second reading fails, so that the third has none before it; then the metrics of the fifth fail.
  EXPECT_EQ(has, (std::vector{false, false, false, true, false, true}));
}

TEST(NvmlHealth, HasWhatTheCardAnswers) {
  auto json = health_json(health_of("0000:01:00.0"));
  EXPECT_GT(json.at("time_s"), 0);
  json.erase("time_s");
  EXPECT_EQ(json, nlohmann::ordered_json::parse(R"({
    "ecc": {"enabled": true, "pending": false, "corrected_volatile": 0, "uncorrected_volatile": 10,
            "corrected_aggregate": 1, "uncorrected_aggregate": 11},
    "row_remapping": {"correctable": 3, "uncorrectable": 2, "pending": false, "failure": true},
    "pcie": {"replays": 12},
    "nvlinks": [{"link": 0, "active": true, "version": 4, "errors": 400, "crc_errors": 200, "replays": 100,
                 "ecc_errors": 100},
                {"link": 1, "active": false}],
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
  auto json = health_json(health_of("0000:02:00.0"));
  json.erase("time_s");
  EXPECT_EQ(json, nlohmann::ordered_json::object());
}

TEST(NvmlHealth, ACardThatIsNotThereIsRefusedWithTheReasonOfTheLibrary) {
  const auto opened = Nvml::open("0000:03:00.0", GPULIFT_FAKE_NVML);
  ASSERT_TRUE(std::holds_alternative<std::string>(opened));
  EXPECT_EQ(std::get<std::string>(opened), "NVML: 0000:03:00.0: some error");
}

}  // namespace
}  // namespace gpulift
