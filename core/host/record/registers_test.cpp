#include "registers.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "core/harness/gpu_sample.hpp"
#include "core/host/measure/hardware_slowdown.hpp"

namespace gpulift {
namespace {

TEST(Roofs, EachSaysItsUnitItsCeilingAndWhatItsLimitComesFrom) {
  ASSERT_FALSE(roofs().empty());
  for (const auto& [name, roof] : roofs().items()) {
    EXPECT_TRUE(roof.at("unit") == "B/s" || roof.at("unit") == "FLOP/s") << name;
    for (const char* text : {"is", "source"}) EXPECT_NE(roof.at(text), "") << name;
    const auto ceiling =
        std::filesystem::path(GPULIFT_SOURCE_FOLDER) / "benches" / roof.at("ceiling").get<std::string>();
    EXPECT_TRUE(std::filesystem::exists(ceiling.string() + ".cpp") || std::filesystem::exists(ceiling.string() + ".py"))
        << name << " is measured by " << ceiling;
  }
}

TEST(Peaks, EachArchitectureHasASource) {
  for (const auto& [name, architecture] : peaks().at("operations").items()) {
    if (name == "about") continue;
    EXPECT_NE(architecture.at("source"), "") << name;
    EXPECT_FALSE(architecture.at("per_clock").empty()) << name;
  }
}

TEST(Slowdowns, HaveEveryReasonThatTheHarnessNames) {
  for (const std::string& name : throttle_names(0x1fe)) EXPECT_TRUE(slowdowns().contains(name)) << name;
}

TEST(HardwareSlowdown, IsToldFromSoftwareLimits) {
  for (const auto bit : {0x8ULL, 0x40ULL, 0x80ULL}) EXPECT_TRUE(is_hardware_slowdown(bit | 0x4)) << bit;
  for (const auto bit : {0x0ULL, 0x1ULL, 0x2ULL, 0x4ULL, 0x10ULL, 0x20ULL, 0x100ULL, 0x10000ULL})
    EXPECT_FALSE(is_hardware_slowdown(bit)) << bit;
}

}  // namespace
}  // namespace gpulift
