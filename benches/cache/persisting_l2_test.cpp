#include <map>
#include <string>
#include <vector>

#include "benches/module_under_test.hpp"
#include "core/testing/checking_trial.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

/// Keeps which arms have their windows made ready: those are single steps without a lead-in.
class PreparedArms : public TrialOfTest {
 public:
  using TrialOfTest::TrialOfTest;
  void compare(std::vector<Arm> arms) override {
    for (const Arm& arm : arms) {
      if (arm.unavailable.empty()) prepared_[arm.name] = arm.make().has_before();
    }
  }
  const std::map<std::string, bool>& prepared() const { return prepared_; }

 private:
  std::map<std::string, bool> prepared_;
};

class PersistingL2 : public DeviceTest {
 protected:
  static std::size_t set_aside_bytes() {
    std::size_t bytes = 0;
    check(cudaDeviceGetLimit(&bytes, cudaLimitPersistingL2CacheSize));
    return bytes;
  }
};

TEST_F(PersistingL2, ArmsLeaveTheCacheAsItWasOrSayWhatTheyNeed) {
  const std::size_t before = set_aside_bytes();
  const CheckingTrial trial(*technique, device(), {{"working_set_mib", std::int64_t{3}}});
  for (const auto& [name, arm] : trial.results()) {
    if (trial.notes().at("set_aside_bytes") == "0" && (name.starts_with("persisting") || name == "set_aside_alone")) {
      EXPECT_NE(arm.unavailable.find("compute capability 8.0"), std::string::npos);
    } else {
      EXPECT_EQ(arm.unavailable, "") << name;
    }
  }
  EXPECT_EQ(set_aside_bytes(), before);
}

TEST_F(PersistingL2, WindowsOfAllArmsBeginAlike) {
  PreparedArms trial(&device(), {{"working_set_mib", std::int64_t{8}}});
  technique->run(trial);
  for (const auto& [name, prepared] : trial.prepared()) {
    EXPECT_EQ(prepared, trial.notes().at("set_aside_bytes") != "0") << name;
  }
}

}  // namespace
}  // namespace gpulift
