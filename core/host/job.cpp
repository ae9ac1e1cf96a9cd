#include "job.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <regex>

#include "core/harness/record_file.hpp"

namespace gpulift {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::string text(32, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts));
  return text;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::string default_python() {
  const char* named = std::getenv("GPULIFT_SETUP_PYTHON");
  return named != nullptr && *named != '\0' ? named : GPULIFT_PYTHON_EXECUTABLE;
}

nlohmann::ordered_json to_json(const RunSettings& settings) {
  return {{"launches", settings.launches},
          {"quick", settings.quick},
          {"arm_time_s", settings.arm_time_s},
          {"precision", settings.precision},
          {"timeout_s", settings.timeout_s},
          {"seed", settings.seed},
          {"gpus", settings.gpus},
          {"scratch", settings.scratch},
          {"scratch_missing", settings.scratch_missing},
          {"plant", settings.plant},
          {"python", settings.python},
          {"base_python", settings.base_python}};
}

RunSettings settings_from_json(const nlohmann::ordered_json& json) {
  RunSettings settings;
  settings.launches = json.at("launches");
  settings.quick = json.at("quick");
  settings.arm_time_s = json.at("arm_time_s");
  settings.precision = json.at("precision");
  settings.timeout_s = json.at("timeout_s");
  settings.seed = json.at("seed");
  settings.gpus = json.at("gpus").get<std::vector<int>>();
  settings.scratch = json.at("scratch");
  settings.scratch_missing = json.at("scratch_missing");
  settings.plant = json.at("plant");
  settings.python = json.at("python");
  settings.base_python = json.at("base_python");
  return settings;
}

double timeout_of(const Job& job, const RunSettings& settings) {
  constexpr double kWholeStepPatience = 8;
  return settings.timeout_s * (job.whole_steps ? kWholeStepPatience : 1);
}

nlohmann::ordered_json to_json(const Job& job) {
  return {{"technique", job.technique},
          {"module", job.module.string()},
          {"base_module", job.base_module.string()},
          {"arm", job.arm},
          {"side", job.side},
          {"case_id", job.case_id},
          {"point", job.point},
          {"quick", job.quick},
          {"regime", job.regime},
          {"whole_steps", job.whole_steps},
          {"gpus", job.gpus},
          {"all_workers", job.all_workers},
          {"arms", job.arms},
          {"script", job.script},
          {"launch", job.launch},
          {"recalled", job.recalled},
          {"about", job.about}};
}

Job job_from_json(const nlohmann::ordered_json& json) {
  Job job;
  job.technique = json.at("technique");
  job.module = json.at("module").get<std::string>();
  job.base_module = json.at("base_module").get<std::string>();
  job.arm = json.at("arm");
  job.side = json.at("side");
  job.case_id = json.at("case_id");
  job.point = json.at("point");
  job.quick = json.at("quick");
  job.regime = json.at("regime");
  job.whole_steps = json.at("whole_steps");
  job.gpus = json.at("gpus");
  job.all_workers = json.at("all_workers");
  job.arms = json.at("arms").get<std::vector<std::string>>();
  job.script = json.at("script");
  job.launch = json.at("launch");
  job.recalled = json.at("recalled");
  job.about = json.at("about");
  return job;
}

nlohmann::ordered_json about_technique(const nlohmann::ordered_json& manifest) {
  auto about = nlohmann::ordered_json::object();
  for (const char* key : {"question", "expectation", "claims", "ceiling", "source"}) {
    if (manifest.contains(key)) about[key] = manifest.at(key);
  }
  return about;
}

nlohmann::ordered_json begin_record(const Job& job, const RunSettings& settings) {
  nlohmann::ordered_json record{
      {"schema", kSchemaVersion},   {"method", kMethodVersion}, {"kind", job.is_duet() ? "duet" : "technique"},
      {"technique", job.technique}, {"case", job.point},        {"case_id", job.case_id}};
  if (job.is_duet()) record["arm"] = job.arm;
  record["quick"] = job.quick;
  record["ceiling"] = false;
  record["regime"] = job.regime;
  record["launch"] = job.launch;
  record["launches"] = settings.launches;
  record["started_at"] = utc_now();
  record["outcome"] = "error";
  record.update(job.about);
  return record;
}

nlohmann::ordered_json options_of(const RunSettings& settings) {
  nlohmann::ordered_json options{{"quick", settings.quick},
                                 {"launches", settings.launches},
                                 {"arm_time_s", settings.arm_time_s},
                                 {"precision", settings.precision},
                                 {"seed", settings.seed}};
  if (settings.plant > 0) options["plant"] = settings.plant;
  return options;
}

std::string without_folders(const std::string& text) {
  static const std::regex folders(R"((^|[^\w/.])/(?:[^\s/:'"]+/)+)");
  return std::regex_replace(text, folders, "$1");
}

void set_outcome(nlohmann::ordered_json& record, const std::string& outcome, const std::string& reason,
                 const std::string& remedy) {
  record["outcome"] = outcome;
  record["reason"] = without_folders(one_line(reason));
  if (!remedy.empty()) record["remedy"] = one_line(remedy);
}

}  // namespace gpulift
