#include "job.hpp"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "core/harness/pattern.hpp"
#include "core/harness/record_file.hpp"

namespace gpulift {
namespace {

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Keys and members of what goes to the launches.
constexpr auto kSettings = std::tuple{std::pair{"launches", &RunSettings::launches},
                                      std::pair{"quick", &RunSettings::quick},
                                      std::pair{"arm_time_s", &RunSettings::arm_time_s},
                                      std::pair{"precision", &RunSettings::precision},
                                      std::pair{"timeout_s", &RunSettings::timeout_s},
                                      std::pair{"seed", &RunSettings::seed},
                                      std::pair{"gpus", &RunSettings::gpus},
                                      std::pair{"scratch", &RunSettings::scratch},
                                      std::pair{"scratch_missing", &RunSettings::scratch_missing},
                                      std::pair{"plant", &RunSettings::plant},
                                      std::pair{"profile", &RunSettings::profile},
                                      std::pair{"prove_checks", &RunSettings::prove_checks},
                                      std::pair{"python", &RunSettings::python},
                                      std::pair{"base_python", &RunSettings::base_python},
                                      std::pair{"given", &RunSettings::given}};
constexpr auto kJob = std::tuple{std::pair{"technique", &Job::technique},
                                 std::pair{"module", &Job::module},
                                 std::pair{"base_module", &Job::base_module},
                                 std::pair{"arm", &Job::arm},
                                 std::pair{"side", &Job::side},
                                 std::pair{"case_id", &Job::case_id},
                                 std::pair{"point", &Job::point},
                                 std::pair{"quick", &Job::quick},
                                 std::pair{"off_sweep", &Job::off_sweep},
                                 std::pair{"regime", &Job::regime},
                                 std::pair{"whole_steps", &Job::whole_steps},
                                 std::pair{"gpus", &Job::gpus},
                                 std::pair{"all_workers", &Job::all_workers},
                                 std::pair{"arms", &Job::arms},
                                 std::pair{"script", &Job::script},
                                 std::pair{"launch", &Job::launch},
                                 std::pair{"recalled", &Job::recalled},
                                 std::pair{"earlier", &Job::earlier},
                                 std::pair{"about", &Job::about}};

template <typename T, typename Members>
nlohmann::ordered_json written(const T& object, const Members& members) {
  nlohmann::ordered_json json;
  std::apply([&](const auto&... of) { ((json[of.first] = object.*of.second), ...); }, members);
  return json;
}

template <typename T, typename Members>
T read_from(const nlohmann::ordered_json& json, const Members& members) {
  T object;
  std::apply([&](const auto&... of) { (json.at(of.first).get_to(object.*of.second), ...); }, members);
  return object;
}

/// Of the predictions those of the case, without saying so again; none was made of a case that the sweep lacks.
void keep_own_predictions(nlohmann::ordered_json& record) {
  auto own = nlohmann::ordered_json::array();
  for (auto prediction : record.value("predict", nlohmann::ordered_json::array())) {
    const auto& asked = prediction.at("case").items();
    const bool matches = std::all_of(asked.begin(), asked.end(), [&](const auto& axis) {
      return record.at("case").value(axis.key(), nlohmann::ordered_json()) == axis.value();
    });
    prediction.erase("case");
    if (matches && !record.contains("off_sweep")) own.push_back(std::move(prediction));
  }
  record.erase("predict");
  if (!own.empty()) record["predict"] = std::move(own);
}

}  // namespace

std::string default_python() {
  const char* named = std::getenv("GPULIFT_SETUP_PYTHON");
  return named != nullptr && *named != '\0' ? named : GPULIFT_PYTHON_EXECUTABLE;
}

nlohmann::ordered_json to_json(const RunSettings& settings) { return written(settings, kSettings); }

RunSettings settings_from_json(const nlohmann::ordered_json& json) { return read_from<RunSettings>(json, kSettings); }

double timeout_of(const Job& job, const RunSettings& settings) {
  constexpr double kWholeStepPatience = 8;
  return settings.timeout_s * (job.whole_steps ? kWholeStepPatience : 1);
}

nlohmann::ordered_json to_json(const Job& job) { return written(job, kJob); }

Job job_from_json(const nlohmann::ordered_json& json) { return read_from<Job>(json, kJob); }

nlohmann::ordered_json about_technique(const nlohmann::ordered_json& manifest) {
  auto about = nlohmann::ordered_json::object();
  for (const char* key : {"question", "expectation", "claims", "ceiling", "source"}) {
    if (manifest.contains(key)) about[key] = manifest.at(key);
  }
  for (const char* trait : {"integrity", "launch_bound", "whole_steps"}) {
    if (manifest.value(trait, false)) about[trait] = true;
  }
  for (const char* key : {"controls", "predict", "found", "l2", "page_cache"}) {
    if (!manifest.contains(key)) continue;
    const auto& value = manifest.at(key);
    const bool is_empty_text = value.is_string() && value.get_ref<const std::string&>().empty();
    if (!value.empty() && !is_empty_text) about[key] = value;
  }
  return about;
}

std::string utc(std::time_t moment) {
  std::tm parts{};
  gmtime_r(&moment, &parts);
  std::string text(32, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts));
  return text;
}

nlohmann::ordered_json begin_record(const Job& job, const RunSettings& settings) {
  nlohmann::ordered_json record{
      {"schema", kSchemaVersion},   {"method", kMethodVersion}, {"kind", job.is_duet() ? "duet" : "technique"},
      {"technique", job.technique}, {"case", job.point},        {"case_id", job.case_id}};
  if (job.is_duet()) record["arm"] = job.arm;
  record["quick"] = job.quick;
  if (job.off_sweep) record["off_sweep"] = true;
  record["ceiling"] = false;
  record["regime"] = job.regime;
  record["launch"] = job.launch;
  record["launches"] = settings.launches;
  record["started_at"] = utc(std::time(nullptr));
  record["outcome"] = "error";
  record.update(job.about);
  keep_own_predictions(record);
  return record;
}

std::string remedy_of_error(const Job& job) {
  return job.off_sweep ? "the sweep has no such case: give --axis values nearer to those that ./gpulift list shows"
                       : "";
}

nlohmann::ordered_json options_of(const RunSettings& settings) {
  nlohmann::ordered_json options{{"quick", settings.quick},
                                 {"launches", settings.launches},
                                 {"arm_time_s", settings.arm_time_s},
                                 {"precision", settings.precision},
                                 {"seed", settings.seed}};
  if (settings.plant > 0) options["plant"] = settings.plant;
  if (settings.profile) options["profile"] = true;
  return options;
}

void add_settings(nlohmann::ordered_json& context, const RunSettings& settings) {
  context["options"] = options_of(settings);
  if (!settings.given.is_null()) context["ranks"] = settings.given.at("facts");
}

std::string without_folders(const std::string& text) {
  static const Pattern folders(R"((^|[^\w/.])/(?:[^\s/:'"]+/)+)");
  return folders.replaced(text, "$1");
}

void set_outcome(nlohmann::ordered_json& record, const std::string& outcome, const std::string& reason,
                 const std::string& remedy) {
  record["outcome"] = outcome;
  record["reason"] = without_folders(one_line(reason));
  if (!remedy.empty()) record["remedy"] = one_line(remedy);
}

}  // namespace gpulift
