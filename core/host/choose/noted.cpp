#include "noted.hpp"

#include <fstream>
#include <stdexcept>

#include "core/host/record/catalogue.hpp"
#include "core/host/record/job.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

std::string measured_card(const Json& context) {
  return context.contains("gpu") ? context.at("gpu").at("card").get<std::string>() : "";
}

}  // namespace

std::map<std::string, Json> noted_in(const std::filesystem::path& folder, const Json& context) {
  if (!std::filesystem::is_directory(folder)) {
    throw std::invalid_argument("--recall " + folder.string() + ": there is no such folder");
  }
  std::map<std::string, Json> notes;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".jsonl") continue;
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line, nullptr, false);
      if (!record.is_object() || !record.contains("notes") || !record.contains("context")) continue;
      if (measured_card(record.at("context")) != measured_card(context)) continue;
      notes[full_case_id(record.at("technique"), record.at("case_id"))].update(record.at("notes"));
    }
  }
  return notes;
}

}  // namespace gpulift
