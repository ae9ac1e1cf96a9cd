// gpulift-bench on a GPU: what the device side of the engine promises, and what becomes of what breaks a device.
#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <optional>

#include "core/harness/machine.hpp"
#include "core/harness/nvml.hpp"
#include "core/harness/telemetry.hpp"
#include "core/harness/window.hpp"
#include "core/host/testing/program.hpp"

namespace gpulift {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class DeviceProgram : public testing_programs::ProgramTest {
 protected:
  void SetUp() override {
    const Json context = Json::parse(run({"--describe"}).output);
    if (!context.contains("gpu")) GTEST_SKIP() << context.at("gpu_missing").get<std::string>();
  }

  static double median_of(const Json& values) {
    auto sorted = values.get<std::vector<double>>();
    std::sort(sorted.begin(), sorted.end());
    return sorted.at(sorted.size() / 2);
  }

  static const char* clock_of(const Json& arm) {
    return arm.at("clock").get<std::string>() == "host" ? "host_s" : "device_s";
  }

  static double step_s(const Json& arm) {
    return median_of(arm.at("windows").at("device_s")) / arm.at("steps_per_window").get<double>();
  }

  /// Time of the head over that of the base: the median of the blocks in each launch, the mean over launches, on the
  /// logarithm.
  double duet_ratio(const std::string& technique, const std::string& head, int launches = 4) {
    const auto folder = build() / "testing-duet";
    const Result result = run({"--head", (folder / head).string(), "--base", (folder / "base").string(), "--records",
                               records_folder().string(), "--benchmark_filter=" + technique + "/other", "--launches",
                               std::to_string(launches), "--arm-time", "0.3"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    double log_ratio = 0;
    const auto all = records();
    EXPECT_EQ(all.size(), static_cast<std::size_t>(launches));
    for (const Json& record : all) log_ratio += log_ratio_of(record) / static_cast<double>(all.size());
    return std::exp(log_ratio);
  }

  /// The median over blocks of the mean log-ratio of the block.
  static double log_ratio_of(const Json& record) {
    std::array<std::size_t, 2> next{};
    Json ratios = Json::array();
    for (const Json& block : record.at("order").at("blocks")) {
      double log_ratio = 0;
      for (const std::size_t arm : block) {
        const Json& one = record.at("arms").at(arm);
        const double window_s = one.at("windows").at(clock_of(one)).at(next.at(arm)++);
        log_ratio += (arm == 1 ? 0.5 : -0.5) * std::log(window_s / one.at("steps_per_window").get<double>());
      }
      ratios.push_back(log_ratio);
    }
    return median_of(ratios);
  }
};

TEST_F(DeviceProgram, AStepForAProfilerIsTakenAndNotTimed) {
  const Result result = measure_what("device", {"spins_short"}, {"--profile", "--launches", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json record = record_of("device");
  EXPECT_EQ(record.at("outcome"), "ok");
  for (const Json& arm : record.at("arms")) EXPECT_FALSE(arm.contains("windows"));
}

TEST_F(DeviceProgram, LaunchesOfAStepAreCountedInAnyProcess) {
  if (!std::filesystem::exists(build() / "libgpulift_launch_counter.so")) GTEST_SKIP() << "built without CUPTI";
  ASSERT_EQ(measure(modules({"device_steps"}), {"--benchmark_filter=when_counted:steps"}).exit_code, 0);
  for (const Json& arm : record_of("device_steps").at("arms")) {
    EXPECT_EQ(arm.at("metrics").at("kernel_launches_per_step"), arm.at("name") == "one" ? 1 : 2) << arm.at("name");
  }
}

TEST_F(DeviceProgram, LaunchesOfAStepAreCountedInTheFirstLaunchAlone) {
  if (!std::filesystem::exists(build() / "libgpulift_launch_counter.so")) GTEST_SKIP() << "built without CUPTI";
  const std::vector<std::string> arguments{"--benchmark_filter=when_counted:steps", "--launches", "2"};
  ASSERT_EQ(measure(modules({"device_steps"}), arguments).exit_code, 0);
  ASSERT_EQ(records().size(), 2U);
  for (const Json& record : records()) {
    for (const Json& arm : record.at("arms")) {
      EXPECT_EQ(arm.value("metrics", Json::object()).contains("kernel_launches_per_step"), record.at("launch") == 0);
    }
  }
}

TEST_F(DeviceProgram, ACountThatFailsCostsThatCountAlone) {
  if (!std::filesystem::exists(build() / "libgpulift_launch_counter.so")) GTEST_SKIP() << "built without CUPTI";
  ASSERT_EQ(measure(modules({"device_steps"}), {"--benchmark_filter=when_counted:throws/(one|two)$"}).exit_code, 0);
  const Json record = record_of("device_steps");
  EXPECT_EQ(record.at("outcome"), "ok");
  EXPECT_EQ(record.at("notes").at("launches_not_counted"), "two: not while it is counted");
  for (const Json& arm : record.at("arms")) {
    EXPECT_FALSE(arm.at("windows").at("device_s").empty()) << arm.at("name");
    EXPECT_EQ(arm.value("metrics", Json::object()).contains("kernel_launches_per_step"), arm.at("name") == "one")
        << arm.at("name");
  }
}

// Windows have one step here, so the kernel behind it is all in the wall clock's time.
TEST_F(DeviceProgram, StepsThatTheHostBoundsAreTimedAsInALoop) {
  ASSERT_EQ(measure_what("device", {"waits_by_events", "waits_by_wall_clock"}).exit_code, 0);
  ASSERT_EQ(records().size(), 2);
  for (const Json& record : records()) {
    const bool events = record.at("case_id") == "does:waits_by_events";
    for (const Json& arm : record.at("arms")) {
      ASSERT_EQ(arm.at("clock"), events ? "device" : "host");
      const double time_s = median_of(arm.at("windows").at(clock_of(arm))) / arm.at("steps_per_window").get<double>();
      if (events) {
        EXPECT_NEAR(time_s, 3e-3, 0.1e-3) << arm.at("name");
      } else {
        EXPECT_GT(time_s, 3.4e-3) << arm.at("name");
      }
    }
  }
}

TEST_F(DeviceProgram, EmptyKernelsAreLaunchedBesideArmsThatTheHostMayPace) {
  ASSERT_EQ(measure_what("device", {"waits_by_events", "waits_by_wall_clock"}).exit_code, 0);
  for (const Json& record : records()) {
    for (const Json& arm : record.at("arms")) {
      const double launch_s = arm.at("metrics").at("empty_launch_s");
      EXPECT_GT(launch_s, 0) << arm.at("name");
      EXPECT_LT(launch_s, step_s(arm)) << arm.at("name") << " does 3 ms of work";
    }
  }
  ASSERT_EQ(measure_what("device", {"spins_short"}).exit_code, 0);
  for (const Json& arm : record_of("spins_short").at("arms")) {
    EXPECT_FALSE(arm.value("metrics", Json::object()).contains("empty_launch_s")) << "held: the host is kept out";
  }
}

TEST_F(DeviceProgram, ASpinOfKnownCyclesIsTimedWithinHalfAPercent) {
  ASSERT_EQ(measure_what("device", {"spins_long"}).exit_code, 0);
  const Json arms = record_of("spins_long").at("arms");
  for (const Json& arm : arms) {
    ASSERT_TRUE(arm.at("windows").contains("sm_clock_hz"));
    const double cycles = step_s(arm) * median_of(arm.at("windows").at("sm_clock_hz"));
    const double expected = arm.at("name") == "other" ? 2e7 : 1e7;
    EXPECT_NEAR(cycles, expected, 0.005 * expected) << arm.at("name");
  }
  EXPECT_NEAR(step_s(arms[1]) / step_s(arms[0]), 2, 0.01);
}

TEST_F(DeviceProgram, ShortKernelsAreHeldSoThatLaunchCostDoesNotLeakIn) {
  ASSERT_EQ(measure_what("device", {"spins_short"}).exit_code, 0);
  const Json fine = record_of("spins_short");
  for (const Json& arm : fine.at("arms")) {
    EXPECT_EQ(arm.at("clock"), "device");
    EXPECT_TRUE(arm.at("held").get<bool>()) << arm.at("name");
  }
}

TEST_F(DeviceProgram, ARecordHasClocksTelemetryAndMemory) {
  ASSERT_EQ(measure_what("device", {"spins_short"}).exit_code, 0);
  const Json record = record_of("spins_short");
  EXPECT_TRUE(record.contains("telemetry") != record.contains("telemetry_missing"));
  EXPECT_FALSE(record.at("context").at("gpu").at("name").get<std::string>().empty());
  EXPECT_EQ(record.at("context").at("gpu").at("card").get<std::string>().size(), 8U);
  for (const Json& arm : record.at("arms")) {
    EXPECT_TRUE(arm.contains("peak_device_bytes"));
    EXPECT_EQ(arm.at("windows").at("device_s").size(), arm.at("windows").at("host_s").size());
  }
}

class DeviceEnergy : public DeviceProgram {
 protected:
  /// The card that gpulift-bench measures on, as the driver's library sees it.
  std::optional<Nvml> card() const {
    const Json context = Json::parse(run({"--describe"}).output);
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none)) {
      const auto opened = Nvml::open(entry.path().filename());
      const auto* nvml = std::get_if<Nvml>(&opened);
      if (nvml != nullptr && card_id(nvml->facts().uuid) == context.at("gpu").at("card").get<std::string>())
        return *nvml;
    }
    return {};
  }

  struct Taken {
    double from_s;
    double to_s;
    double power_w;  // its energy over its length
  };

  static std::vector<Taken> windows_of(const Json& arm) {
    const Json& times = arm.at("windows");
    std::vector<Taken> windows;
    for (std::size_t i = 0; i < times.at("start_s").size(); ++i) {
      const double to_s = times.at("start_s")[i].get<double>() + times.at("host_s")[i].get<double>();
      const double length_s = times.at("device_s")[i];  // of the counted steps, without their lead-in
      EXPECT_TRUE(times.at("energy_j")[i].is_number()) << arm.at("name") << ", window " << i;
      windows.push_back({to_s - length_s, to_s, times.at("energy_j")[i].get<double>() / length_s});
    }
    return windows;
  }
};

// Expected on an H200 (700 W): idle some 75 to 120 W, one spinning thread 110 to 160 W, the triad 400 to 600 W. A
// counter that is updated every 100 ms shows 10 or 11 updates in a window of 1.05 s, enough for it to have an energy.
// What this process samples of the power in the same second is the same within 10 %: both come from one sensor.
TEST_F(DeviceEnergy, OfASustainedWindowIsThatOfItsArmAlone) {
  const auto nvml = card();
  std::unique_ptr<Telemetry> watch;
  double idle_w = 0;
  if (nvml) {
    watch = std::make_unique<Telemetry>([nvml] { return nvml->sample(); });
    const double from_s = now_s();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    const auto idle = watch->summary(from_s, now_s());
    if (idle.contains("power_w")) idle_w = idle.at("power_w").at("min");
  }
  const auto folder = modules({"device"});
  change_manifest(folder, "device", [](Json& manifest) {
    for (Json& of_case : manifest["cases"]) of_case["regime"] = "sustained";
  });
  ASSERT_EQ(measure(folder, {"--quick", does({"draws_power"})}).exit_code, 0);
  const Json record = record_of("draws_power");
  ASSERT_EQ(record.at("outcome"), "ok") << record.value("reason", "");
  const Json telemetry = record.value("telemetry", Json::object());
  if (!telemetry.contains("energy_j")) GTEST_SKIP() << "the card has no energy counter";
  const double limit_w = record.at("context").at("gpu").value("power_limit_w", 1e9);
  std::vector<double> mean_w;
  for (const Json& arm : record.at("arms")) {
    ASSERT_TRUE(arm.at("windows").contains("energy_j")) << arm.at("name") << ": too few updates in a second";
    ASSERT_EQ(arm.at("windows").at("energy_j").size(), arm.at("windows").at("start_s").size());
    double sum_w = 0;
    const auto windows = windows_of(arm);
    for (const Taken& window : windows) {
      sum_w += window.power_w;
      EXPECT_GT(window.power_w, 0.95 * idle_w) << arm.at("name");
      EXPECT_LT(window.power_w, 1.05 * limit_w) << arm.at("name");
      if (!watch) continue;
      const auto sampled = watch->summary(window.from_s, window.to_s);
      ASSERT_TRUE(sampled.contains("power_w")) << arm.at("name") << ": the windows' clock is not ours";
      const double sampled_w = sampled.at("power_w").at("median");
      EXPECT_NEAR(window.power_w, sampled_w, 0.1 * sampled_w) << arm.at("name");
    }
    mean_w.push_back(sum_w / static_cast<double>(windows.size()));
  }
  EXPECT_LT(mean_w.at(0), 0.7 * mean_w.at(1)) << "an arm has part in the energy of the other";
  if (!watch) GTEST_SKIP() << "which card it is cannot be told: its sampled power was not compared";
}

TEST_F(DeviceEnergy, OfAWindowOfMillisecondsIsNotKnown) {
  ASSERT_EQ(measure_what("device", {"spins_short"}).exit_code, 0);
  const Json fine = record_of("spins_short");
  for (const Json& arm : fine.at("arms")) EXPECT_FALSE(arm.at("windows").contains("energy_j")) << arm.at("name");
}

// The arms in chunks allocate nothing of their own. (The baseline comes first, and meets what its poison loads.)
TEST_F(DeviceProgram, StreamsThatArmsShareAreChargedToNone) {
  ASSERT_EQ(measure(build() / "modules", {"--benchmark_filter=stream_overlap/copy_to_compute:1_to_1/bytes:1048576/"})
                .exit_code,
            0);
  const Json arms = records().at(0).at("arms");
  for (std::size_t i = 1; i < arms.size(); ++i) EXPECT_EQ(arms[i].at("peak_device_bytes"), 0U) << arms[i].at("name");
}

TEST_F(DeviceProgram, APoisonedDeviceCostsItsOwnCaseAlone) {
  const Result result =
      measure(modules({"device", "fine"}),
              {"--launches", "2", does({"spins_short", "spins_long", "writes_out_of_bounds"}) + "|^testing/fine"});
  EXPECT_EQ(result.exit_code, 1);
  int poisoned = 0;
  int fine = 0;
  for (const Json& record : records()) {
    if (record.at("case").value("does", "") == "writes_out_of_bounds") {
      ++poisoned;
      EXPECT_EQ(record.at("outcome"), "error");
      EXPECT_THAT(record.at("reason").get<std::string>(), HasSubstr("cudaErrorIllegalAddress"));
    } else {
      ++fine;
      EXPECT_EQ(record.at("outcome"), "ok") << record.value("reason", "");
    }
  }
  EXPECT_EQ(poisoned, 1) << "its second launch is not tried";
  EXPECT_EQ(fine, 8) << "two cases of two techniques in two launches";
}

TEST_F(DeviceProgram, AnArmThatDoesNotFitIsSkippedAndWhatItTookIsFree) {
  const Result result = measure_what("device", {"spins_short", "asks_for_too_much"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json record = record_of("asks_for_too_much");
  ASSERT_EQ(record.at("outcome"), "ok") << record.value("reason", "");
  EXPECT_EQ(record.at("arms")[0].at("outcome"), "ok") << "made once more, it takes three quarters of the memory";
  EXPECT_EQ(record.at("arms")[1].at("outcome"), "skipped");
  EXPECT_THAT(record.at("arms")[1].at("reason").get<std::string>(), HasSubstr("out of memory"));
  EXPECT_EQ(record_of("spins_short").at("outcome"), "ok");
}

TEST_F(DeviceProgram, AnIndexBeyondTheLastGpuIsAReason) {
  const Result result = measure(modules({"device"}), {"--gpu", "99"});
  EXPECT_EQ(result.exit_code, 77);
  EXPECT_THAT(records().front().at("reason").get<std::string>(), HasSubstr("there is no GPU 99"));
}

TEST_F(DeviceProgram, AnEmptyListOfVisibleDevicesSkipsWithThatReason) {
  const Result result = run(measure_arguments(modules({"device"}), {}), {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(result.exit_code, 77);
  EXPECT_THAT(records().front().at("reason").get<std::string>(), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

class PlantedDuet : public DeviceProgram, public testing::WithParamInterface<const char*> {};

TEST_P(PlantedDuet, OfEqualBuildsReadsOne) { EXPECT_NEAR(duet_ratio(GetParam(), "base_again"), 1, 0.003); }

// Where the arrays of a launch lie has an effect of its own on the triad: its log-ratio had a standard deviation of
// 0.15 % from launch to launch (20 launches on an H200). Over 12 launches four of the mean's are 0.17 %.
TEST_P(PlantedDuet, ReadsHalfAPercentWithinFourStandardDeviations) {
  EXPECT_NEAR(duet_ratio(GetParam(), "head", 12), 1.005, 0.0017);
}

INSTANTIATE_TEST_SUITE_P(Work, PlantedDuet, testing::Values("planted_spin", "planted_triad"),
                         [](const auto& work) { return std::string(work.param); });

// The host's time of one launch is far less certain than the device's: on a machine with an H200 the log-ratio had a
// standard deviation of 0.32 % from launch to launch (20 launches). With it, the mean over the launches is further off
// than four of its own standard deviations with a probability of 6.4e-5. With 25 launches that limit is 0.26 %, so that
// half a percent and none are told apart.
constexpr int kHostLaunches = 25;
constexpr double kHostSd = 0.0032;

TEST_F(DeviceProgram, APlantedHalfPercentOnTheHostIsReadWithinFourStandardDeviations) {
  const double limit = 4 * kHostSd / std::sqrt(kHostLaunches);
  EXPECT_NEAR(std::log(duet_ratio("planted_host", "head", kHostLaunches)), std::log(1.005), limit);
}

class PlantedWork : public DeviceProgram, public testing::WithParamInterface<const char*> {};

// Work of one step that is far longer than a launch, and windows of many short ones.
TEST_P(PlantedWork, OfTheEngineIsWhatWasAskedForAndIsRead) {
  const auto folder = (build() / "testing-modules").string();
  ASSERT_EQ(run({"--head", folder, "--base", folder, "--records", records_folder().string(), "--plant", "0.01",
                 std::string("--benchmark_filter=") + GetParam(), "--launches", "4", "--arm-time", "0.3"})
                .exit_code,
            0);
  const auto all = records();
  ASSERT_EQ(all.size(), 4U);
  double log_ratio = 0;
  for (const Json& record : all) {
    // Cycles are planted: where the clock moves after they were counted out, they take more or less than was asked for,
    // and the note says how much. One launch in eight read 0.0105.
    EXPECT_NEAR(std::stod(record.at("notes").at("planted").get<std::string>()), 0.01, 0.001);
    log_ratio += log_ratio_of(record) / static_cast<double>(all.size());
  }
  EXPECT_NEAR(std::exp(log_ratio), 1.01, 0.001);
}

INSTANTIATE_TEST_SUITE_P(Spins, PlantedWork, testing::Values("does:spins_short/other", "does:spins_long/other"),
                         [](const auto& work) {
                           return std::string(work.param).find("long") == std::string::npos ? "Short" : "Long";
                         });

/// On a machine whose GPU is seen and cannot be used.
class LostGpu : public testing_programs::ProgramTest {
 protected:
  /// `error`: the number of what opening the GPU gives.
  Result run_refused(int error) const {
    return run(measure_arguments(modules({"fine", "needs_gpus"}), {"--quick", "--launches", "2"}),
               {{"LD_PRELOAD", library_.string()}, {"GPULIFT_FAKE_CUDA_ERROR", std::to_string(error)}});
  }

  const std::filesystem::path library_ = build() / "testing-odd" / "testing_fake_cudart.so";
};

TEST_F(LostGpu, NothingIsMeasuredInItsPlaceAndEveryCaseIsAnErrorOfThatGpu) {
  constexpr int kOutOfMemory = 2;
  const Result result = run_refused(kOutOfMemory);
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_EQ(records().size(), 4U) << "two cases, two launches";
  for (const Json& record : records()) {
    EXPECT_EQ(record.at("outcome"), "error") << record.at("technique");
    EXPECT_THAT(record.at("reason").get<std::string>(),
                AllOf(StartsWith("the GPU cannot be used: "), HasSubstr("cudaErrorMemoryAllocation")));
    EXPECT_THAT(record.at("remedy").get<std::string>(), HasSubstr("nvidia-smi"));
    EXPECT_EQ(record.at("context").at("gpu").at("name"), "Fake GPU");
  }
}

class CodeForAnotherGpu : public LostGpu, public testing::WithParamInterface<int> {};

TEST_P(CodeForAnotherGpu, IsSaidWithBothArchitecturesAndTheRemedy) {
  EXPECT_EQ(run_refused(GetParam()).exit_code, 1);
  ASSERT_FALSE(records().empty());
  for (const Json& record : records()) {
    EXPECT_THAT(record.at("reason").get<std::string>(),
                AllOf(HasSubstr("it is for the architectures "), HasSubstr("the GPU is 12.0")));
    EXPECT_THAT(record.at("remedy").get<std::string>(), HasSubstr("./gpulift setup"));
  }
}

// cudaErrorInvalidDeviceFunction, cudaErrorNoKernelImageForDevice, cudaErrorUnsupportedPtxVersion
INSTANTIATE_TEST_SUITE_P(Errors, CodeForAnotherGpu, testing::Values(98, 209, 222));

}  // namespace
}  // namespace gpulift
