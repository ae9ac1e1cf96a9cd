#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

Point point(const std::string& pass, const std::string& norm, const std::string& shape) {
  return {{"pass", pass}, {"norm", norm}, {"shape", shape}};
}

class FusionLayerNorm : public DeviceTest {};

TEST_F(FusionLayerNorm, OurKernelsAreThoseOfDoublePrecision) {
  for (const char* pass : {"forward", "backward"}) {
    for (const char* norm : {"layer_norm", "rms_norm"}) {
      const CheckingTrial trial(*technique, device(), point(pass, norm, "130x768"));
      const auto& fused = trial.results().at("fused");
      EXPECT_LE(fused.error, fused.tolerance) << pass << " " << norm;
      EXPECT_GT(fused.error, 0) << "BF16 rounds: " << pass << " " << norm;
      EXPECT_EQ(fused.cost.bytes, 4 * 2 * 130 * 768) << pass << " " << norm;
      EXPECT_EQ(fused.cost.roof, "") << "the cache has its data";
      EXPECT_EQ(fused.peak_device_bytes, 0) << "nothing is kept between two kernels";
    }
  }
}

TEST_F(FusionLayerNorm, AllShapesAreMeasuredAgainstTheRoofOfMemory) {
  for (const Value& shape : technique->sweep.back().values) {
    for (const char* pass : {"forward", "backward"}) {
      const CheckingTrial trial(*technique, device(), point(pass, "layer_norm", std::get<std::string>(shape)));
      const auto& fused = trial.results().at("fused");
      EXPECT_LE(fused.error, fused.tolerance) << pass;
      EXPECT_EQ(fused.cost.roof, "device_memory") << pass;
    }
  }
}

TEST_F(FusionLayerNorm, AShapeThatIsNoneIsRefused) {
  for (const char* shape : {"130", "130x", "x768", "130x768x2", "-1x768"}) {
    EXPECT_THROW(CheckingTrial(*technique, device(), point("forward", "layer_norm", shape)), std::invalid_argument)
        << shape;
  }
}

}  // namespace
}  // namespace gpulift
