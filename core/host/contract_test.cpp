// What every technique of the suite must keep to. A new file in benches/ is tested here without an edit.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "catalogue.hpp"
#include "core/host/testing/program.hpp"
#include "device_session.hpp"
#include "module_loader.hpp"

namespace gpulift {
namespace {

const std::filesystem::path kModules = std::filesystem::path(GPULIFT_BUILD_FOLDER) / "modules";

/// All techniques, those that were not built included. Read once, for each case is a process, and asks several times.
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

class Contract : public testing_programs::ProgramTest, public testing::WithParamInterface<std::string> {
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
    return info_.is_script() && said.at("gpus") == 0 && said.at("environment").empty() && said.at("preload").empty();
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

  TechniqueInfo info_;
};

TEST_P(Contract, SaysWhatItAsksAndExpects) {
  EXPECT_THAT(info_.manifest.at("question").get<std::string>(), testing::EndsWith("?"));
  EXPECT_FALSE(info_.manifest.at("expectation").get<std::string>().empty());
}

TEST_P(Contract, HasABaselineAndSomethingToCompareAndNoNameTwice) {
  EXPECT_GE(info_.arms.size(), info_.ceiling ? 1U : 2U);
  EXPECT_EQ(std::set<std::string>(info_.arms.begin(), info_.arms.end()).size(), info_.arms.size());
  for (const std::string& arm : info_.arms) {
    EXPECT_TRUE(std::all_of(arm.begin(), arm.end(),
                            [](char letter) {
                              return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') ||
                                     letter == '_';
                            }))
        << arm << " is no snake_case word";
  }
}

TEST_P(Contract, HasBesideItsBaselineAnArmThatIsNoControl) {
  const auto controls = info_.manifest.at("controls").get<std::set<std::string>>();
  const std::set<std::string> others(info_.arms.begin() + 1, info_.arms.end());
  EXPECT_TRUE(std::includes(others.begin(), others.end(), controls.begin(), controls.end()));
  if (!info_.ceiling) {
    EXPECT_LT(controls.size(), others.size());
  }
}

TEST_P(Contract, HasTwoCasesWhereTheSignCanFlip) {
  EXPECT_GE(info_.cases.size(), info_.ceiling ? 1U : 2U);
  std::set<std::string> ids;
  for (const CaseInfo& info : info_.cases) EXPECT_TRUE(ids.insert(info.id).second) << info.id << " twice";
}

TEST_P(Contract, QuickIsThePartThatTellsMost) {
  const auto quick =
      std::count_if(info_.cases.begin(), info_.cases.end(), [](const CaseInfo& info) { return info.quick; });
  // Interpreters that load a framework for every launch, and models that train for their check, take longer than all
  // other quick cases together. A ceiling of LibTorch's is the roof of such models alone.
  const bool roof_of_models = info_.ceiling && info_.manifest.contains("torch");
  if (info_.manifest.at("python").empty() && !info_.whole_steps && !roof_of_models) {
    EXPECT_GT(quick, 0);
  }
  constexpr std::size_t kFew = 6;
  if (info_.cases.size() <= kFew) return;
  EXPECT_LT(static_cast<std::size_t>(quick), info_.cases.size());
}

TEST_P(Contract, HasTheScriptOfItsPythonArmsBesideIt) {
  const auto script = std::filesystem::path(info_.module).replace_extension(".py");
  EXPECT_EQ(std::filesystem::exists(script), !info_.manifest.at("python").empty());
}

TEST_P(Contract, IsWhatItsManifestSays) {
  if (info_.is_script()) GTEST_SKIP() << "a technique in Python alone has no module";
  const Module module(info_.module);
  auto manifest = info_.manifest;
  for (const char* key : {"torch", "source"}) manifest.erase(key);  // of the build, not of the technique
  EXPECT_EQ(manifest_of(module.id(), own_abi_tag(), module.technique()), manifest);
  EXPECT_TRUE(module.technique().run != nullptr);
}

// The engine checks every arm before it times any.
TEST_P(Contract, EveryArmGivesTheSameResultInItsSmallestCase) {
  if (device_count() == 0 && arms_can_be_forks())
    GTEST_SKIP() << "benches/contract_test.py tests it of what needs no GPU and no process from its start on";
  const std::string filter = "^" + full_case_id(info_.id, smallest_case().id) + "$";
  const Result result = run({"--modules", kModules.string(), "--benchmark_filter=" + filter, "--records",
                             records_folder().string(), "--launches", "1", "--arm-time", "0.01"});
  ASSERT_EQ(records().size(), 1U) << result.errors;
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
}

INSTANTIATE_TEST_SUITE_P(Techniques, Contract, testing::ValuesIn(all_ids()), test_name);

}  // namespace
}  // namespace gpulift
