#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"
#include "workloads/matmul.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

using GemmGroupedOnDevice = DeviceTest;

TEST(GemmGrouped, SidesOfEveryExpertSuitEveryAlgorithm) {
  for (const Value& value : technique->sweep.at(0).values) {
    const MatmulShape sizes = parse_matmul_shape(std::get<std::string>(value));
    EXPECT_EQ(sizes.m % 8, 0);
    EXPECT_EQ(sizes.n % 128, 0) << "an expert's results begin at 256 bytes";
    EXPECT_EQ(sizes.k % 128, 0) << "a token begins at 256 bytes";
  }
}

TEST_F(GemmGroupedOnDevice, ArmsDoTheSameWorkWhateverTheyPad) {
  const Point point{
      {"experts", "64x1408x2048"}, {"tokens", std::int64_t{1024}}, {"dealt", "half_to_an_eighth"}, {"regime", "burst"}};
  const CheckingTrial trial(*technique, device(), point);
  for (const auto& [name, arm] : trial.results()) {
    if (!arm.unavailable.empty()) continue;
    EXPECT_EQ(arm.cost.flops, 2.0 * 1408 * 2048 * (8 * 64 + 56 * 9)) << name;
  }
  const auto& results = trial.results();
  EXPECT_GT(results.at("batched").peak_device_bytes, results.at("cublas_grouped").peak_device_bytes);
}

}  // namespace
}  // namespace gpulift
