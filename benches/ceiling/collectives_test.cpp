// One process here: a group of one rank, and the copy between two GPUs. That ranks find each other is for the contract
// tests, which run the technique through the engine.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "benches/module_under_test.hpp"
#include "core/testing/trial_of_test.hpp"
#include "kernels/device_test.hpp"

namespace gpulift {
namespace {

const ModuleUnderTest technique;

/// Keeps what the technique declares and makes nothing: without a device, as in the parent of workers, where it has
/// none.
class OneProcessTrial final : public TrialOfTest {
 public:
  OneProcessTrial(const std::string& link, std::int64_t bytes, Device* device = nullptr, std::vector<int> gpus = {},
                  std::int64_t ranks = 2)
      : TrialOfTest(device, {{"gpus", ranks}, {"link", link}, {"bytes", bytes}}), gpus_(std::move(gpus)) {}

  const std::vector<Arm>& arms() const { return arms_; }
  const Arm& arm(const std::string& name) const {
    for (const Arm& arm : arms_) {
      if (arm.name == name) return arm;
    }
    throw std::logic_error("no arm " + name);
  }
  const Check& same_result() const { return check_of_case(); }

  std::vector<int> gpus() const override { return gpus_; }
  /// The copy needs a second GPU.
  void compare(std::vector<Arm> arms) override {
    arms_ = std::move(arms);
    if (!has_device()) return;
    for (const Arm& arm : arms_) {
      if (arm.name != "peer_copy" || gpus_.size() > 1) errors_[arm.name] = errors_of(arm);
    }
  }

  struct Errors {
    double poisoned = 0;
    double after_a_step = 0;
    double after_two_more = 0;
  };
  const std::map<std::string, Errors>& errors() const { return errors_; }

 private:
  Errors errors_of(const Arm& arm) const {
    const UniqueStream stream = make_stream();
    const Work work = arm.make();
    Errors errors;
    check_of_case().poison(stream.get());
    errors.poisoned = check_of_case().error(stream.get());
    work.step()(stream.get());
    errors.after_a_step = check_of_case().error(stream.get());
    work.step()(stream.get());
    work.step()(stream.get());
    errors.after_two_more = check_of_case().error(stream.get());
    return errors;
  }

  std::vector<int> gpus_;
  std::vector<Arm> arms_;
  std::map<std::string, Errors> errors_;
};

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(Collectives, CountTheBusBytesOfNcclTests) {
  for (const auto& [ranks, others] : {std::pair{2, 0.5}, {4, 0.75}, {8, 0.875}}) {
    OneProcessTrial trial("nvlink", kMiB, nullptr, {}, ranks);
    technique->run(trial);
    const std::map<std::string, double> share{{"all_reduce", 2 * others},
                                              {"all_gather", others},
                                              {"reduce_scatter", others},
                                              {"all_to_all", others},
                                              {"peer_copy", 1.0}};
    ASSERT_EQ(trial.arms().size(), share.size());
    for (const Arm& arm : trial.arms()) {
      EXPECT_EQ(arm.cost.value().bytes, share.at(arm.name) * kMiB) << arm.name << " of " << ranks;
      EXPECT_EQ(arm.cost.value().items, 1) << arm.name;
    }
    EXPECT_EQ(trial.arm("all_reduce").worker.value().ranks, ranks);
  }
}

/// Of this process, as long as it lives.
class Nvls {
 public:
  explicit Nvls(const char* value) {
    if (value == nullptr) {
      unsetenv(kName);
    } else {
      setenv(kName, value, 1);
    }
  }
  Nvls(const Nvls&) = delete;
  Nvls& operator=(const Nvls&) = delete;
  ~Nvls() { before_ ? setenv(kName, before_->c_str(), 1) : unsetenv(kName); }

 private:
  static constexpr const char* kName = "NCCL_NVLS_ENABLE";
  std::optional<std::string> before_ =
      std::getenv(kName) ? std::optional<std::string>(std::getenv(kName)) : std::nullopt;
};

TEST(Collectives, AnAllReduceThatASwitchMaySumIsNoRoofOfTheLink) {
  for (const auto& [nvls, ranks, link, roof] : {std::tuple{"0", 8, "nvlink", "gpu_link"},
                                                {"1", 8, "nvlink", ""},
                                                {nullptr, 4, "nvlink", ""},
                                                {nullptr, 2, "nvlink", "gpu_link"},
                                                {nullptr, 8, "host", "gpu_link/host"},
                                                {"0", 16, "fabric", "fabric"},
                                                {nullptr, 16, "fabric", ""}}) {
    const Nvls set(nvls);
    OneProcessTrial trial(link, kMiB, nullptr, {}, ranks);
    technique->run(trial);
    EXPECT_EQ(trial.arm("all_reduce").cost.value().roof, roof) << ranks << " by " << link;
    for (const char* name : {"all_gather", "reduce_scatter", "all_to_all"}) {
      EXPECT_NE(trial.arm(name).cost.value().roof, "") << name << " by " << link;
    }
  }
}

TEST(Collectives, LeaveSumsInTheSwitchToTheUsersEnvironment) {
  for (const char* link : {"nvlink", "host", "fabric"}) {
    OneProcessTrial trial(link, kMiB);
    technique->run(trial);
    EXPECT_FALSE(trial.arm("all_reduce").worker.value().environment.contains("NCCL_NVLS_ENABLE")) << link;
  }
}

TEST(Collectives, TakeThePathThatTheCaseNames) {
  for (const auto& [link, disabled] : {std::pair{"nvlink", "0"}, {"host", "1"}}) {
    OneProcessTrial trial(link, kMiB);
    technique->run(trial);
    for (const char* name : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}) {
      const Worker& worker = trial.arm(name).worker.value();
      EXPECT_EQ(worker.ranks, 2) << name;
      EXPECT_TRUE(worker.device) << name;
      EXPECT_EQ(worker.environment, (std::map<std::string, std::string>{{"NCCL_P2P_DISABLE", disabled}})) << name;
    }
    EXPECT_EQ(trial.arm("peer_copy").worker.value().ranks, 1);
    EXPECT_TRUE(trial.arm("peer_copy").worker.value().environment.empty());
  }
  OneProcessTrial host("host", kMiB);
  technique->run(host);
  EXPECT_EQ(host.arm("all_reduce").cost.value().roof, "gpu_link/host");
}

TEST(Collectives, TakeWhatNcclFindsBestBetweenNodes) {
  OneProcessTrial trial("fabric", kMiB, nullptr, {}, 16);
  technique->run(trial);
  const Arm& arm = trial.arm("all_reduce");
  EXPECT_TRUE(arm.worker.value().environment.empty());
  EXPECT_EQ(arm.worker.value().ranks, 16);
  EXPECT_EQ(trial.arm("all_gather").cost.value().roof, "fabric");
  EXPECT_EQ(arm.cost.value().bytes, 2 * 15.0 / 16 * kMiB);
  EXPECT_NE(trial.arm("peer_copy").unavailable, "");
}

TEST(Collectives, DeclareNcclsVersion) {
  OneProcessTrial trial("host", kMiB);
  technique->run(trial);
  EXPECT_NE(trial.versions().at("nccl"), "");
}

TEST(Collectives, WithoutAResultTheCheckFails) {
  OneProcessTrial trial("host", kMiB);
  technique->run(trial);
  EXPECT_FALSE(trial.same_result().error(nullptr) <= trial.same_result().tolerance);
}

class CollectivesOnGpus : public DeviceTest {
 protected:
  static std::vector<int> all_gpus() {
    int count = 0;
    gpulift::check(cudaGetDeviceCount(&count));
    std::vector<int> gpus;
    for (int gpu = 0; gpu < count; ++gpu) gpus.push_back(gpu);
    return gpus;
  }
};

TEST_F(CollectivesOnGpus, OneRankAloneGetsExactResultsAndAPoisonedOutputIsFound) {
  // The second is longer than the integers, which then repeat.
  for (const std::int64_t bytes : {std::int64_t{8192}, 6 * kMiB}) {
    OneProcessTrial trial("host", bytes, &device(), {device().index()});
    technique->run(trial);
    EXPECT_EQ(trial.errors().size(), 4);
    for (const auto& [name, errors] : trial.errors()) {
      EXPECT_EQ(errors.poisoned, static_cast<double>(bytes) / 4) << name;
      EXPECT_EQ(errors.after_a_step, 0) << name;
      EXPECT_EQ(errors.after_two_more, 0) << name;
    }
  }
}

TEST_F(CollectivesOnGpus, ACopyArrivesOnTheSecondGpuAndLeavesTheFirstTheCurrentOne) {
  const std::vector<int> gpus = all_gpus();
  if (gpus.size() < 2) GTEST_SKIP() << "one GPU";
  for (const char* link : {"host", "nvlink"}) {
    OneProcessTrial trial(link, 6 * kMiB, &device(), gpus);
    try {
      technique->run(trial);
    } catch (const NotSupported& reason) {
      GTEST_SKIP() << reason.what();
    }
    const auto& errors = trial.errors().at("peer_copy");
    EXPECT_EQ(errors.poisoned, 6.0 * kMiB / 4) << link;
    EXPECT_EQ(errors.after_a_step, 0) << link;
    EXPECT_EQ(errors.after_two_more, 0) << link;
    int current = -1;
    gpulift::check(cudaGetDevice(&current));
    EXPECT_EQ(current, device().index()) << link;
  }
}

}  // namespace
}  // namespace gpulift
