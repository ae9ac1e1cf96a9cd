#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "kernels/layer_norm.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

TEST(FusionRmsNorm, ItsWidthsAreThoseOfTheKernel) {
  for (const Value& width : technique->sweep.at(2).values) {
    const auto columns = static_cast<int>(std::get<std::int64_t>(width));
    EXPECT_NO_THROW(norm_forward({.rows = 0, .columns = columns, .norm = Norm::kRms}, {}, nullptr)) << columns;
  }
}

using FusionRmsNormOnDevice = DeviceTest;

TEST_F(FusionRmsNormOnDevice, OurKernelsAreThoseOfDoublePrecision) {
  for (const std::int64_t width : {768, 4096, 8192}) {
    for (const std::string pass : {"forward", "backward"}) {
      const CheckingTrial trial(*technique, device(), {{"pass", pass}, {"rows", std::int64_t{13}}, {"width", width}});
      const auto& fused = trial.results().at("fused");
      EXPECT_LE(fused.error, fused.tolerance) << pass << " " << width;
      EXPECT_GT(fused.error, 0) << "BF16 rounds: " << pass << " " << width;
      EXPECT_EQ(fused.cost.bytes, (pass == "forward" ? 2.0 : 3.0) * 2 * 13 * static_cast<double>(width)) << pass;
      EXPECT_EQ(fused.cost.roof, "") << "the cache has its data";
      EXPECT_EQ(fused.peak_device_bytes, 0);
    }
  }
}

TEST_F(FusionRmsNormOnDevice, ManyRowsAreMeasuredAgainstTheRoofOfMemory) {
  const CheckingTrial trial(*technique, device(),
                            {{"pass", "forward"}, {"rows", std::int64_t{16384}}, {"width", std::int64_t{4096}}});
  const auto& fused = trial.results().at("fused");
  EXPECT_LE(fused.error, fused.tolerance);
  EXPECT_EQ(fused.cost.roof, "device_memory");
}

}  // namespace
}  // namespace gpulift
