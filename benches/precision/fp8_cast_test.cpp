#include <stdexcept>
#include <string>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using PrecisionFp8Cast = DeviceTest;

constexpr double kCount = 8192.0 * 8192;

Point case_of(const std::string& cast) { return {{"cast", cast}}; }

TEST_F(PrecisionFp8Cast, EachReadingAndEachCopyCounts) {
  for (const auto& [cast, bytes] : {std::pair{"tensor", 5.0}, {"row", 3.0}, {"row_both_ways", 6.0}}) {
    const CheckingTrial trial(*technique, device(), case_of(cast));
    const auto& own = trial.results().at("own");
    EXPECT_EQ(own.cost.bytes, bytes * kCount) << cast;
    EXPECT_LE(own.error, own.tolerance) << cast;
    EXPECT_GT(own.error, 0.9 / 16) << cast << " has numbers half a step away";
    EXPECT_GE(own.peak_device_bytes, (bytes == 6 ? 2 : 1) * kCount) << cast;
  }
}

TEST_F(PrecisionFp8Cast, FormatsThatNothingMultipliesHereAreSkipped) {
  for (const char* cast : {"mxfp8", "nvfp4"}) {
    if (device().architecture() < 100) {
      EXPECT_THROW(CheckingTrial(*technique, device(), case_of(cast)), std::runtime_error) << cast;
    } else {
      const CheckingTrial trial(*technique, device(), case_of(cast));
      EXPECT_LE(trial.results().at("own").error, trial.results().at("own").tolerance) << cast;
    }
  }
}

}  // namespace
}  // namespace gpulift
