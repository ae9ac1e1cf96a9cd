#include "plausibility.hpp"

#include <gtest/gtest.h>

namespace gpulift {
namespace {

// What an H200 (SXM, PCI Express 5.0 x16) says of itself.
nlohmann::ordered_json h200() {
  return {{"architecture", 90},        {"multiprocessors", 132},
          {"max_sm_clock_hz", 1.98e9}, {"max_memory_clock_hz", 3.201e9},
          {"memory_bus_bits", 6144},   {"pcie_max_generation", 5},
          {"pcie_max_width", 16}};
}

TEST(PhysicalLimit, OfDeviceMemoryIsTheDatasheets) {
  EXPECT_NEAR(physical_limit("device_memory", h200()).value(), 4.9e12, 0.02e12);  // datasheet: 4.8 TB/s
}

TEST(PhysicalLimit, OfTheHostLinkIsThatOfItsLanes) {
  EXPECT_NEAR(physical_limit("host_link/h2d", h200()).value(), 63e9, 0.1e9);
  EXPECT_EQ(physical_limit("host_link/d2h", h200()), physical_limit("host_link/h2d", h200()));
  EXPECT_EQ(physical_limit("host_link/both", h200()), 2 * physical_limit("host_link/h2d", h200()).value());
}

TEST(PhysicalLimit, OfTheLinkBetweenGpusIsThatOfAllItsNvlinksOneWay) {
  auto gpu = h200();
  gpu["nvlink_links"] = 18;
  gpu["nvlink_link_bytes_per_s"] = 25e9;
  EXPECT_EQ(physical_limit("gpu_link", gpu), 450e9);  // datasheet: 900 GB/s, both ways
}

TEST(PhysicalLimit, OfTheWayThroughTheHostIsThatOfTheHostLinkOneWay) {
  EXPECT_EQ(physical_limit("gpu_link/host", h200()), physical_limit("host_link/h2d", h200()));
  EXPECT_TRUE(physical_limit("gpu_link/host", h200()));
}

TEST(PhysicalLimit, OfOlderLinks) {
  auto gpu = h200();
  gpu["pcie_max_generation"] = 4;
  EXPECT_NEAR(physical_limit("host_link/h2d", gpu).value(), 31.5e9, 0.1e9);
  gpu["pcie_max_generation"] = 3;
  EXPECT_NEAR(physical_limit("host_link/h2d", gpu).value(), 15.75e9, 0.1e9);
  gpu["pcie_max_generation"] = 1;
  EXPECT_NEAR(physical_limit("host_link/h2d", gpu).value(), 4e9, 0.1e9);
}

TEST(PhysicalLimit, OfMatrixUnitsIsAtTheHighestClock) {
  EXPECT_NEAR(physical_limit("gemm/bf16", h200()).value(), 1070e12, 1e12);  // datasheet, at 1.83 GHz: 989.5
  EXPECT_EQ(physical_limit("gemm/fp16", h200()), physical_limit("gemm/bf16", h200()));
  EXPECT_EQ(physical_limit("gemm/fp8", h200()), 2 * physical_limit("gemm/bf16", h200()).value());
  EXPECT_EQ(physical_limit("gemm/int8", h200()), physical_limit("gemm/fp8", h200()));
  EXPECT_EQ(physical_limit("gemm/tf32", h200()), physical_limit("gemm/bf16", h200()).value() / 2);
  EXPECT_NEAR(physical_limit("gemm/fp32", h200()).value(), 66.9e12, 0.1e12);
}

// Datasheet dense peaks in TFLOP/s at the datasheets' boost clocks.
struct Datasheet {
  int architecture;
  int multiprocessors;
  double boost_hz;
  const char* type;
  double peak;
};

void PrintTo(const Datasheet& sheet, std::ostream* out) {
  *out << "sm_" << sheet.architecture << " with " << sheet.multiprocessors << " SMs, " << sheet.type;
}

class OperationsPerClock : public testing::TestWithParam<Datasheet> {};

TEST_P(OperationsPerClock, GivesTheDatasheetsPeak) {
  const auto& [architecture, multiprocessors, boost_hz, type, peak] = GetParam();
  EXPECT_NEAR(operations_per_clock(architecture, type).value() * multiprocessors * boost_hz, peak, 0.01 * peak);
}

INSTANTIATE_TEST_SUITE_P(Datasheets, OperationsPerClock,
                         testing::Values(Datasheet{75, 40, 1.59e9, "fp16", 65e12},        // T4
                                         Datasheet{80, 108, 1.41e9, "bf16", 312e12},      // A100
                                         Datasheet{80, 108, 1.41e9, "fp32", 19.5e12},     // A100
                                         Datasheet{120, 170, 2.407e9, "fp32", 104.8e12},  // GeForce RTX 5090
                                         Datasheet{120, 170, 2.407e9, "fp16", 419e12},    // with FP16 accumulation
                                         Datasheet{120, 170, 2.407e9, "fp8", 838e12},     // with FP16 accumulation
                                         Datasheet{80, 108, 1.41e9, "tf32", 156e12},      // A100
                                         Datasheet{86, 84, 1.74e9, "fp16", 149.7e12},     // A40
                                         Datasheet{89, 142, 2.52e9, "fp8", 733e12},       // L40S
                                         Datasheet{90, 132, 1.83e9, "bf16", 989.5e12},    // H100 SXM
                                         Datasheet{90, 132, 1.83e9, "fp8", 1979e12}));    // H100 SXM

TEST(PhysicalLimit, IsUnknownWithoutTheFacts) {
  for (const char* roof : {"device_memory", "host_link/h2d"})
    EXPECT_FALSE(physical_limit(roof, {{"architecture", 90}}));
  EXPECT_FALSE(physical_limit("gemm/bf16", {{"architecture", 90}, {"multiprocessors", 132}}));
  EXPECT_FALSE(physical_limit("host_memory", h200()));
  for (const char* roof : {"gpu_link", "gpu_link/other"}) EXPECT_FALSE(physical_limit(roof, h200())) << roof;
  EXPECT_FALSE(physical_limit("gpu_link/host", {{"architecture", 90}}));
  EXPECT_FALSE(physical_limit("", h200()));
  auto future = h200();
  future["pcie_max_generation"] = 9;
  EXPECT_FALSE(physical_limit("host_link/h2d", future));
}

TEST(PhysicalLimit, IsUnknownWhereTheDriverGivesZero) {
  const auto without = [](const char* fact) {
    auto gpu = h200();
    gpu[fact] = 0;
    return gpu;
  };
  for (const char* fact : {"max_memory_clock_hz", "memory_bus_bits"})
    EXPECT_FALSE(physical_limit("device_memory", without(fact))) << fact;
  for (const char* fact : {"pcie_max_generation", "pcie_max_width"})
    EXPECT_FALSE(physical_limit("host_link/h2d", without(fact))) << fact;
  for (const char* fact : {"nvlink_links", "nvlink_link_bytes_per_s"}) {
    nlohmann::ordered_json gpu{{"nvlink_links", 18}, {"nvlink_link_bytes_per_s", 25e9}};
    gpu[fact] = 0;
    EXPECT_FALSE(physical_limit("gpu_link", gpu)) << fact;
  }
  for (const char* fact : {"architecture", "multiprocessors", "max_sm_clock_hz"})
    EXPECT_FALSE(physical_limit("gemm/bf16", without(fact))) << fact;
}

TEST(TellsOtherTime, IsFarBelowWhatTheHostSawOrAboveIt) {
  const auto tells = [](double host_s, double device_s, std::int64_t lead_in_steps = 0) {
    return tells_other_time({.host_s = host_s, .device_s = device_s}, 2, lead_in_steps);
  };
  EXPECT_TRUE(tells(1, 0.1));
  EXPECT_FALSE(tells(1, 0.7)) << "which launches may have waited for";
  EXPECT_FALSE(tells(1, 0.5, 1)) << "the lead-in was not done yet";
  EXPECT_TRUE(tells(1, 1.1)) << "more than passed";
  EXPECT_FALSE(tells_other_time({.host_s = 1}, 2, 0)) << "there are no marks";
}

TEST(ExceedsAllCores, IsMoreThanTheirTimeAndATick) {
  EXPECT_TRUE(exceeds_all_cores(0.062, 0.0027, 16));
  EXPECT_FALSE(exceeds_all_cores(0.0432, 0.0027, 16)) << "all of them";
  EXPECT_FALSE(exceeds_all_cores(0.010, 1e-5, 16)) << "the clock is no finer";
  EXPECT_FALSE(exceeds_all_cores(9, 1, 0)) << "how many cores there are is not known";
}

TEST(OperationsPerClock, OfATypeThatTheHardwareLacksIsUnknown) {
  EXPECT_FALSE(operations_per_clock(80, "fp8"));
  EXPECT_FALSE(operations_per_clock(75, "bf16"));
  EXPECT_FALSE(operations_per_clock(200, "fp16"));
}

}  // namespace
}  // namespace gpulift
