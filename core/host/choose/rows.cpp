#include "rows.hpp"

#include <algorithm>
#include <fstream>
#include <set>
#include <stdexcept>
#include <tuple>

namespace gpulift {
namespace {

std::string name_of(const Row& row) { return full_case_id(row.technique, row.case_id) + "/" + row.arm; }

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields{""};
  for (const char letter : line) {
    if (letter == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += letter;
    }
  }
  return fields;
}

Row parse_row(const std::string& line, const std::string& place) {
  const std::vector<std::string> fields = fields_of(line);
  if (fields.size() != 3 || fields[0].empty() || fields[2].empty()) {
    throw std::invalid_argument(place + ": '" + line + "' is no row: technique, case and arm, with a tab between");
  }
  return {fields[0], fields[1], fields[2]};
}

template <typename T, typename Member>
const T* named(const std::vector<T>& all, Member T::* id, const std::string& wanted) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const T& one) { return one.*id == wanted; });
  return found == all.end() ? nullptr : &*found;
}

/// The technique of the row. Throws std::invalid_argument unless it has the row or was not built.
const TechniqueInfo& require(const std::vector<TechniqueInfo>& catalogue, const Row& row) {
  const TechniqueInfo* technique = named(catalogue, &TechniqueInfo::id, row.technique);
  if (technique == nullptr) throw std::invalid_argument(name_of(row) + ": there is no technique " + row.technique);
  if (!technique->unavailable.empty()) return *technique;
  if (named(technique->cases, &CaseInfo::id, row.case_id) == nullptr) {
    throw std::invalid_argument(name_of(row) + ": " + row.technique + " has no case '" + row.case_id + "'");
  }
  if (std::find(technique->arms.begin(), technique->arms.end(), row.arm) == technique->arms.end()) {
    throw std::invalid_argument(name_of(row) + ": " + row.technique + " has no arm '" + row.arm + "'");
  }
  return *technique;
}

}  // namespace

std::vector<Row> read_rows(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw std::invalid_argument("cannot read the rows in " + file.string());
  std::vector<Row> rows;
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (!line.empty()) rows.push_back(parse_row(line, file.string() + ":" + std::to_string(number)));
  }
  if (stream.bad()) throw std::invalid_argument("cannot read the rows in " + file.string());
  if (rows.empty()) throw std::invalid_argument(file.string() + " has no row: nothing would be measured");
  return rows;
}

RowSelection select_rows(const std::vector<TechniqueInfo>& catalogue, const std::vector<Row>& rows) {
  std::set<const TechniqueInfo*> unavailable;
  std::set<std::tuple<std::string, std::string, std::string>> wanted;
  for (const Row& row : rows) {
    const TechniqueInfo& technique = require(catalogue, row);
    if (!technique.unavailable.empty()) unavailable.insert(&technique);
    wanted.emplace(row.technique, row.case_id, row.arm);
  }
  RowSelection selection;
  for (const TechniqueInfo& technique : catalogue) {
    if (unavailable.contains(&technique)) selection.unavailable.push_back(&technique);
    for (const CaseInfo& info : technique.cases) {
      SelectedCase candidate{&technique, &info, {}};
      for (const std::string& arm : technique.arms) {
        if (wanted.contains({technique.id, info.id, arm})) candidate.arms.push_back(arm);
      }
      if (!candidate.arms.empty()) selection.cases.push_back(std::move(candidate));
    }
  }
  return selection;
}

}  // namespace gpulift
