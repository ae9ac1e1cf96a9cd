#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "benches/module_under_test.hpp"
#include "core/testing/trial_of_test.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;
constexpr std::int64_t kBytes = std::int64_t{1} << 20;

/// Lets each arm take a step on all GPUs of the machine.
class TrialOnAllGpus final : public TrialOfTest {
 public:
  TrialOnAllGpus(Device& device, int gpus)
      : TrialOfTest(&device, {{"bytes", kBytes}}), gpus_(static_cast<std::size_t>(gpus)) {
    std::iota(gpus_.begin(), gpus_.end(), 0);
  }
  std::vector<int> gpus() const override { return gpus_; }
  void compare(std::vector<Arm> arms) override {
    const UniqueStream stream = make_stream();
    for (const Arm& arm : arms) {
      const Work work = arm.make();
      check_of_case().poison(stream.get());
      poisoned[arm.name] = check_of_case().error(stream.get());
      work.step()(stream.get());
      after_a_step[arm.name] = check_of_case().error(stream.get());
    }
  }

  std::map<std::string, double> poisoned;
  std::map<std::string, double> after_a_step;

 private:
  std::vector<int> gpus_;
};

using PeerCopy = DeviceTest;

TEST_F(PeerCopy, EveryByteArrivesWhereTheArmSaysAndNotBefore) {
  int gpus = 0;
  gpulift::check(cudaGetDeviceCount(&gpus));
  if (gpus < 2) GTEST_SKIP() << "one GPU";
  TrialOnAllGpus trial(device(), gpus);
  technique->run(trial);
  for (const char* arm : {"write", "read", "both_ways", "through_host"}) {
    const double all = std::string(arm) == "both_ways" ? 2.0 * kBytes : kBytes;
    EXPECT_GT(trial.poisoned.at(arm), 0.99 * all) << arm << ": one byte in 256 is that of the poison";
    EXPECT_EQ(trial.after_a_step.at(arm), 0) << arm;
  }
  EXPECT_NE(trial.notes().at("pairs").find("0 to 1: "), std::string::npos);
}

}  // namespace
}  // namespace gpulift
