#pragma once
// What to measure as a list of rows, for programs that know exactly which arms they want: no expression to render, to
// escape and to match again.

#include <filesystem>
#include <string>
#include <vector>

#include "benchmark_front.hpp"
#include "core/host/record/catalogue.hpp"

namespace gpulift {

/// One arm of one case.
struct Row {
  std::string technique;
  std::string case_id;  // empty for a technique with one case
  std::string arm;
};

/// A line per row: technique, case and arm with a tab between. Empty lines are ignored. Throws std::invalid_argument
/// for a file that cannot be read or has no row, and for a line that is no row.
std::vector<Row> read_rows(const std::filesystem::path& file);

struct RowSelection {
  std::vector<SelectedCase> cases;                // in the order of the catalogue
  std::vector<const TechniqueInfo*> unavailable;  // that rows name but were not built: their cases are not known
};

/// Throws std::invalid_argument for the first row that the catalogue does not have.
RowSelection select_rows(const std::vector<TechniqueInfo>& catalogue, const std::vector<Row>& rows);

}  // namespace gpulift
