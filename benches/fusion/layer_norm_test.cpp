#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

class FusionLayerNorm : public DeviceTest {
 protected:
  static Point point(const std::string& pass, const std::string& norm, std::int64_t rows = 130) {
    return {{"pass", pass}, {"norm", norm}, {"rows", rows}};
  }
};

TEST_F(FusionLayerNorm, OurKernelsAreThoseOfDoublePrecision) {
  for (const char* pass : {"forward", "backward"}) {
    for (const char* norm : {"layer_norm", "rms_norm"}) {
      const CheckingTrial trial(*technique, device(), point(pass, norm));
      const auto& fused = trial.results().at("fused");
      EXPECT_LE(fused.error, fused.tolerance) << pass << " " << norm;
      EXPECT_GT(fused.error, 0) << "BF16 rounds: " << pass << " " << norm;
      EXPECT_EQ(fused.cost.bytes, 4 * 2 * 130 * 768) << pass << " " << norm;
      EXPECT_EQ(fused.cost.roof, "") << "the cache has its data";
      EXPECT_EQ(fused.peak_device_bytes, 0) << "nothing is kept between two kernels";
    }
  }
}

TEST_F(FusionLayerNorm, ManyRowsAreMeasuredAgainstTheRoofOfMemory) {
  const std::int64_t rows = std::get<std::int64_t>(technique->sweep.back().values.back());
  for (const char* pass : {"forward", "backward"}) {
    const CheckingTrial trial(*technique, device(), point(pass, "layer_norm", rows));
    const auto& fused = trial.results().at("fused");
    EXPECT_LE(fused.error, fused.tolerance) << pass;
    EXPECT_EQ(fused.cost.roof, "device_memory") << pass;
  }
}

}  // namespace
}  // namespace gpulift
