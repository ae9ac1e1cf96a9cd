#include "gpu_health.hpp"

#include <gtest/gtest.h>

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

TEST(GpuHealth, OfWhichNothingIsKnownIsAnEmptyObject) { EXPECT_EQ(health_json({}), Json::object()); }

TEST(GpuHealth, GroupsHoldOnlyWhatIsKnown) {
  GpuHealth health;
  health.ecc.enabled = true;
  health.now.pcie_generation = 4;
  health.facts.pcie_max_generation = 5;
  health.now.temperature_c = 33.0;
  EXPECT_EQ(health_json(health), (Json{{"ecc", {{"enabled", true}}},
                                       {"pcie", {{"generation", 4}, {"max_generation", 5}}},
                                       {"temperature", {{"now_c", 33.0}}}}));
}

TEST(GpuHealth, NothingThatThrottlesAndNobodyElseAreAnswers) {
  GpuHealth health;
  health.throttle_reasons = 0x1;  // idle
  health.other_processes.emplace();
  EXPECT_EQ(health_json(health), (Json{{"throttle", Json::array()}, {"processes", Json::array()}}));
}

TEST(GpuHealth, EveryFactHasItsKey) {
  GpuHealth health;
  health.facts.driver = "580.159.04";
  health.facts.mig = false;
  health.facts.power_limit_w = 600;
  health.facts.default_power_limit_w = 700;
  health.facts.max_sm_clock_hz = 1.98e9;
  health.facts.pcie_max_generation = 5;
  health.facts.pcie_max_width = 16;
  health.now.sm_clock_hz = 3.45e8;
  health.now.pcie_generation = 1;
  health.now.pcie_width = 8;
  health.now.temperature_c = 30;
  health.ecc = {true, false, 1, 2, 3, 4};
  health.row_remapping = GpuHealth::RowRemapping{5, 6, true, false};
  health.retired_pages_pending = true;
  health.pcie_replays = 7;
  health.nvlinks = {{0, true, 4, 10, 6, 1, 2}, {3, false, {}, {}, {}, {}, {}}};
  health.min_power_limit_w = 200;
  health.max_power_limit_w = 700;
  health.application_sm_clock_hz = 1.98e9;
  health.throttle_reasons = 0x4;
  health.slowdown_temperature_c = 92;
  health.shutdown_temperature_c = 95;
  health.temperature_margin_c = 57;
  health.memory = GpuHealth::Memory{100, 70, 20, 10};
  health.other_processes = std::vector<GpuHealth::Process>{{42, 9}, {43, {}}};
  health.persistence_mode = true;
  health.compute_mode = "exclusive";
  EXPECT_EQ(health_json(health), Json::parse(R"({
    "ecc": {"enabled": true, "pending": false, "corrected_volatile": 1, "uncorrected_volatile": 2,
            "corrected_aggregate": 3, "uncorrected_aggregate": 4},
    "row_remapping": {"correctable": 5, "uncorrectable": 6, "pending": true, "failure": false},
    "retired_pages_pending": true,
    "pcie": {"generation": 1, "width": 8, "max_generation": 5, "max_width": 16, "replays": 7},
    "nvlinks": [{"link": 0, "active": true, "version": 4, "errors": 10, "crc_errors": 6, "replays": 1,
                 "ecc_errors": 2},
                {"link": 3, "active": false}],
    "power": {"limit_w": 600.0, "default_limit_w": 700.0, "min_limit_w": 200.0, "max_limit_w": 700.0},
    "clocks": {"sm_hz": 3.45e8, "max_sm_hz": 1.98e9, "application_sm_hz": 1.98e9},
    "throttle": ["sw_power_cap"],
    "temperature": {"now_c": 30.0, "slowdown_c": 92.0, "shutdown_c": 95.0, "margin_c": 57.0},
    "memory": {"total_bytes": 100, "free_bytes": 70, "used_bytes": 20, "reserved_bytes": 10},
    "processes": [{"pid": 42, "used_bytes": 9}, {"pid": 43}],
    "persistence_mode": true,
    "compute_mode": "exclusive",
    "mig": false,
    "driver": "580.159.04"
  })"));
}

}  // namespace
}  // namespace gpulift
