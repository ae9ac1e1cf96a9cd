#include "catalogue.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace gpulift {
namespace {

std::vector<Point> all_points(const std::vector<Axis>& sweep) {
  std::vector<Point> points{{}};
  for (const Axis& axis : sweep) {
    std::vector<Point> longer;
    for (const Point& point : points) {
      for (const Value& value : axis.values) {
        longer.push_back(point);
        longer.back().emplace_back(axis.name, value);
      }
    }
    points = std::move(longer);
  }
  return points;
}

bool matches(const Point& point, const Point& pattern) {
  return std::all_of(pattern.begin(), pattern.end(),
                     [&](const auto& wanted) { return std::find(point.begin(), point.end(), wanted) != point.end(); });
}

/// The words with one space between, so that a source may wrap and indent them as it likes.
std::string one_paragraph(const std::string& text) {
  std::istringstream words(text);
  std::string paragraph;
  for (std::string word; words >> word;) paragraph += (paragraph.empty() ? "" : " ") + word;
  return paragraph;
}

std::string regime_of(const Point& point) {
  for (const auto& [name, value] : point) {
    if (name == "regime") return std::get<std::string>(value);
  }
  return "burst";
}

const char* word_of(Cache cache) {
  switch (cache) {
    case Cache::kUnsaid:
      return "";
    case Cache::kNone:
      return "none";
    case Cache::kCold:
      return "cold";
    case Cache::kWarm:
      return "warm";
    case Cache::kBySize:
      return "by_size";
    case Cache::kByCase:
      break;
  }
  return "by_case";
}

nlohmann::ordered_json to_json(const Prediction& prediction) {
  nlohmann::ordered_json json{{"arm", prediction.arm}, {"case", point_to_json(prediction.cases)}};
  if (!prediction.on.empty()) json["on"] = prediction.on;
  const auto put = [&json](const char* key, const std::optional<Prediction::Range>& range) {
    if (range) json[key] = {range->low, range->high};
  };
  put("speedup", prediction.speedup);
  put("step_time_s", prediction.step_time_s);
  return json;
}

/// The version that a version.py names; empty when there is none.
std::string version_in(const std::filesystem::path& version_file) {
  std::ifstream file(version_file);
  for (std::string line; std::getline(file, line);) {
    const std::size_t begin = line.find_first_of("'\"");
    if (!line.starts_with("__version__") || begin == std::string::npos) continue;
    return line.substr(begin + 1, line.find_first_of("'\"", begin + 1) - begin - 1);
  }
  return "";
}

/// Another LibTorch than the one compiled against would crash or, worse, compute something else: says so instead.
void refuse_other_torch(nlohmann::ordered_json& manifest) {
  if (!manifest.contains("torch")) return;
  const std::string built = manifest.at("torch").at("version");
  const std::string found = version_in(manifest.at("torch").at("file").get<std::string>());
  if (found == built) return;
  manifest["unavailable"] = "built against torch " + built + ", but " +
                            (found.empty() ? "it is no longer there" : "torch " + found + " is there now");
  manifest["remedy"] = "./gpulift setup builds it anew";
}

TechniqueInfo parse_manifest(const std::filesystem::path& file) {
  std::ifstream stream(file);
  TechniqueInfo info;
  info.manifest = nlohmann::ordered_json::parse(stream);
  info.id = info.manifest.at("id");
  refuse_other_torch(info.manifest);
  info.module = std::filesystem::path(file).replace_extension(info.is_script() ? ".py" : ".so");
  info.unavailable = info.manifest.value("unavailable", "");
  info.remedy = info.manifest.value("remedy", "");
  if (!info.unavailable.empty()) return info;
  info.abi_tag = info.manifest.value("abi_tag", "");
  info.arms = info.manifest.at("arms").get<std::vector<std::string>>();
  info.python = info.manifest.at("python").get<std::vector<std::string>>();
  info.gpus = info.manifest.at("gpus");
  info.ceiling = info.manifest.at("ceiling");
  info.whole_steps = info.manifest.at("whole_steps");
  for (const auto& entry : info.manifest.at("cases")) {
    info.cases.push_back({entry.at("id"), entry.at("point"), entry.at("quick"), entry.at("regime"),
                          gpus_of(info.gpus, entry.at("point"))});
  }
  return info;
}

}  // namespace

int gpus_of(int least, const nlohmann::ordered_json& point) {
  if (!point.contains("gpus")) return least;
  return std::max(least, point.at("gpus").get<int>());
}

std::string case_id(const Point& point) {
  std::string id;
  for (const auto& [name, value] : point) {
    if (!id.empty()) id += '/';
    id += name + ":";
    id += std::holds_alternative<std::string>(value) ? std::get<std::string>(value)
                                                     : std::to_string(std::get<std::int64_t>(value));
  }
  return id;
}

std::string full_case_id(const std::string& technique, const std::string& case_id) {
  return case_id.empty() ? technique : technique + "/" + case_id;
}

nlohmann::ordered_json point_to_json(const Point& point) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : point) {
    std::visit([&json, &key = name](const auto& held) { json[key] = held; }, value);
  }
  return json;
}

Point point_from_json(const nlohmann::ordered_json& json) {
  Point point;
  for (const auto& [name, value] : json.items()) {
    if (value.is_string()) {
      point.emplace_back(name, value.get<std::string>());
    } else {
      point.emplace_back(name, value.get<std::int64_t>());
    }
  }
  return point;
}

nlohmann::ordered_json manifest_of(const std::string& id, const std::string& abi_tag, const Technique& technique) {
  nlohmann::ordered_json manifest{{"id", id},
                                  {"abi_tag", abi_tag},
                                  {"question", technique.question},
                                  {"expectation", one_paragraph(technique.expectation)},
                                  {"predict", nlohmann::ordered_json::array()},
                                  {"found", one_paragraph(technique.found)},
                                  {"claims", technique.claims},
                                  {"gpus", technique.gpus},
                                  {"ceiling", technique.ceiling},
                                  {"integrity", technique.integrity},
                                  {"launch_bound", technique.launch_bound},
                                  {"whole_steps", technique.whole_steps},
                                  {"spans_hosts", technique.spans_hosts},
                                  {"arms", technique.arms},
                                  {"controls", technique.controls},
                                  {"python", technique.python},
                                  {"l2", word_of(technique.l2)},
                                  {"page_cache", word_of(technique.page_cache)},
                                  {"cases", nlohmann::ordered_json::array()}};
  for (const Prediction& prediction : technique.predict) manifest["predict"].push_back(to_json(prediction));
  for (const Point& point : all_points(technique.sweep)) {
    const bool quick = std::any_of(technique.quick.begin(), technique.quick.end(),
                                   [&](const Point& pattern) { return matches(point, pattern); });
    manifest["cases"].push_back(
        {{"id", case_id(point)}, {"point", point_to_json(point)}, {"quick", quick}, {"regime", regime_of(point)}});
  }
  return manifest;
}

nlohmann::ordered_json source_in(const std::filesystem::path& sums_file) {
  auto source = nlohmann::ordered_json::object();
  std::ifstream file(sums_file);
  for (std::string line; std::getline(file, line);) {
    const std::size_t end = line.find("  ");
    if (end == std::string::npos) throw CatalogueError(sums_file.string() + " has a line without hash and path");
    source[line.substr(end + 2)] = line.substr(0, end);
  }
  if (source.empty()) throw CatalogueError(sums_file.string() + " names no source");
  return source;
}

nlohmann::ordered_json torch_in(const std::filesystem::path& version_file) {
  const std::string version = version_in(version_file);
  if (version.empty()) throw CatalogueError(version_file.string() + " names no version");
  return {{"version", version}, {"file", version_file.string()}};
}

std::vector<TechniqueInfo> read_catalogue(const std::vector<std::filesystem::path>& folders) {
  std::vector<TechniqueInfo> catalogue;
  for (const auto& folder : folders) {
    std::error_code failure;
    const std::size_t before = catalogue.size();
    for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
      if (entry.path().extension() != ".json") continue;
      try {
        catalogue.push_back(parse_manifest(entry.path()));
      } catch (const nlohmann::json::exception& error) {
        throw CatalogueError(entry.path().filename().string() + " is no manifest (" + error.what() + "): build again");
      }
    }
    if (failure) throw CatalogueError("no folder of modules at " + folder.string() + ": " + failure.message());
    if (catalogue.size() == before)
      throw CatalogueError("no modules in " + folder.string() + ": build first, or give --modules");
  }
  std::sort(catalogue.begin(), catalogue.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  const auto twice =
      std::adjacent_find(catalogue.begin(), catalogue.end(), [](const auto& a, const auto& b) { return a.id == b.id; });
  if (twice != catalogue.end()) throw CatalogueError("two techniques have the id " + twice->id);
  return catalogue;
}

}  // namespace gpulift
