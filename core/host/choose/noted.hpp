#pragma once
// What techniques noted in an earlier run (an algorithm that a search chose), so that the next run need not search
// again.

#include <filesystem>
#include <map>
#include <string>

#include "core/harness/json.hpp"

namespace gpulift {

/// Notes by "technique/case" from the records in a folder, those of this card only; `context` is that of this machine.
/// A line that is no whole record is passed over: it may still be written. Throws std::invalid_argument when there is
/// no such folder.
std::map<std::string, nlohmann::ordered_json> noted_in(const std::filesystem::path& folder,
                                                       const nlohmann::ordered_json& context);

}  // namespace gpulift
