// What every technique of the suite must keep to. A new file in benches/ is tested here without an edit.
#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>

#include "core/host/measure/device_session.hpp"
#include "core/host/measure/module_loader.hpp"
#include "core/host/record/catalogue.hpp"
#include "core/host/testing/program.hpp"

namespace gpulift {
namespace {

const std::filesystem::path kModules = std::filesystem::path(GPULIFT_BUILD_FOLDER) / "modules";

/// All techniques, those that were not built included.
const std::vector<TechniqueInfo>& catalogue() {
  static const std::vector<TechniqueInfo> all = read_catalogue({kModules});
  return all;
}

std::vector<std::string> all_ids() {
  std::vector<std::string> ids;
  for (const TechniqueInfo& info : catalogue()) ids.push_back(info.id);
  return ids;
}

std::string test_name(const testing::TestParamInfo<std::string>& id) {
  std::string name = id.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

/// Who builds one technique to test it leaves the others as they were.
bool is_stale(const TechniqueInfo& info) {
  return info.unavailable.empty() && !info.is_script() && info.abi_tag != own_abi_tag();
}

// benches/manifests_test.py holds what they declare; a script has no module: its manifest is what the script says.
TEST(Contract, EachModuleIsWhatItsManifestSays) {
  bool any = false;
  for (const TechniqueInfo& info : catalogue()) {
    if (!info.unavailable.empty() || info.is_script()) continue;
    if (is_stale(info)) {
      std::cout << info.id << " is left out: it was built before the engine's headers changed\n";
      continue;
    }
    any = true;
    SCOPED_TRACE(info.id);
    const Module module(info.module);
    auto manifest = info.manifest;
    for (const char* key : {"torch", "source"}) manifest.erase(key);  // of the build, not of the technique
    EXPECT_EQ(manifest_of(module.id(), own_abi_tag(), module.technique()), manifest);
    EXPECT_TRUE(module.technique().run != nullptr);
  }
  if (!any) GTEST_SKIP() << "no technique with a module was built";
}

/// What they measure: a test for each, since it takes seconds and each has a time limit of its own.
class EveryArm : public testing_programs::ProgramTest, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    for (const TechniqueInfo& info : catalogue()) {
      if (info.id == GetParam()) info_ = info;
    }
    ASSERT_EQ(info_.id, GetParam());
    if (!info_.unavailable.empty()) GTEST_SKIP() << info_.unavailable << ": " << info_.remedy;
  }

  /// The case whose numbers are smallest, of a toy model if there is one: the cheapest to run.
  const CaseInfo& smallest_case() const {
    const auto size_of = [](const CaseInfo& info) {
      double size = info.regime == "sustained" ? 1e18 : 1;
      for (const auto& value : info.point) {
        if (value.is_number()) size *= std::max(1.0, value.get<double>());
        if (value.is_string() && !value.get<std::string>().ends_with("_toy")) size *= 1e6;
      }
      return size;
    };
    return *std::min_element(info_.cases.begin(), info_.cases.end(),
                             [&](const auto& a, const auto& b) { return size_of(a) < size_of(b); });
  }

  /// Interpreters for all these arms would take most of the time of all tests on a machine without a GPU.
  bool arms_can_be_forks() const {
    const Json& said = info_.manifest;
    return info_.is_script() && said.at("gpus") == 0 && said.at("preload").empty() && all_is_read_late();
  }

  /// Of the environments of the arms, once torch is loaded: what is read when ranks meet. Most is read while libraries
  /// load.
  bool all_is_read_late() const {
    for (const Json& variables : info_.manifest.at("environment")) {
      for (const auto& variable : variables.items()) {
        if (!variable.key().starts_with("NCCL_") && !variable.key().starts_with("TORCH_SYMM_MEM_")) return false;
      }
    }
    return true;
  }

  static void expect_whole(const Json& arm, const std::string& name) {
    EXPECT_EQ(arm.at("name"), name);
    if (arm.at("outcome") == "skipped") {
      EXPECT_FALSE(arm.at("reason").get<std::string>().empty()) << name;
      return;
    }
    EXPECT_EQ(arm.at("outcome"), "ok") << name;
    ASSERT_TRUE(arm.value("checked", true)) << name << " was compared with nothing";
    EXPECT_LE(arm.at("check_error"), arm.at("check_tolerance")) << name;
    EXPECT_GE(arm.at("steps_per_window"), 1) << name;
    EXPECT_FALSE(arm.at("windows").at("host_s").empty()) << name;
    const Json& cost = arm.at("cost");
    EXPECT_GT(cost.at("bytes").get<double>() + cost.at("flops").get<double>() + cost.at("items").get<double>(), 0)
        << name << " has no cost: no rate could be shown";
  }

  /// A launch's seed changes values, never how much there is to do.
  static void expect_equal_work(const Json& first, const Json& other) {
    ASSERT_EQ(other.value("arms", Json::array()).size(), first.at("arms").size()) << other.value("reason", "");
    for (std::size_t i = 0; i < first.at("arms").size(); ++i) {
      const Json& arm = first.at("arms")[i];
      EXPECT_EQ(other.at("arms")[i].value("cost", Json()), arm.value("cost", Json())) << arm.at("name");
    }
  }

  TechniqueInfo info_;
};

// The engine checks every arm before it times any, and of arms in C++ that an arm without a step fails.
TEST_P(EveryArm, GivesTheSameResultInItsSmallestCase) {
  if (device_count() == 0 && arms_can_be_forks())
    GTEST_SKIP() << "benches/contract_test.py tests it of what needs no GPU and no process from its start on";
  const std::string filter = "^" + full_case_id(info_.id, smallest_case().id) + "$";
  // Interpreters take the time that a second launch would; benches/contract_test.py gives scripts a second seed.
  const std::size_t launches = info_.python.empty() ? 2 : 1;
  const Result result =
      run({"--modules", kModules.string(), "--benchmark_filter=" + filter, "--records", records_folder().string(),
           "--launches", std::to_string(launches), "--arm-time", "0.01", "--timeout", "600",
           "--prove-checks"});  // ranks of all arms start at once, on however few cores
  ASSERT_EQ(records().size(), launches) << result.errors;
  const Json record = records().front();
  const std::string outcome = record.at("outcome");
  if (outcome == "skipped") {
    EXPECT_EQ(result.exit_code, 77);
    EXPECT_FALSE(record.at("reason").get<std::string>().empty());
    GTEST_SKIP() << record.at("reason").get<std::string>();
  }
  const std::string reason = record.value("reason", "");
  const bool sanitized = !record.at("context").at("build").at("sanitizers").get<std::string>().empty();
  if (sanitized && reason.starts_with("the worker of arm")) {
    GTEST_SKIP() << "a sanitizer brings its own allocator and must be loaded first: " << reason;
  }
  EXPECT_EQ(outcome, "ok") << reason;
  EXPECT_EQ(result.exit_code, 0);
  ASSERT_EQ(record.value("arms", Json::array()).size(), info_.arms.size());
  for (std::size_t i = 0; i < info_.arms.size(); ++i) expect_whole(record.at("arms")[i], info_.arms[i]);
  expect_equal_work(record, records().back());
}

INSTANTIATE_TEST_SUITE_P(Techniques, EveryArm, testing::ValuesIn(all_ids()), test_name);

}  // namespace
}  // namespace gpulift
