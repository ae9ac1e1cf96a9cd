#pragma once

#include <string>

#include "json.hpp"

namespace gpulift {

/// "environment" of a record: the variables that are set, out of a list of those that change the process.
nlohmann::ordered_json environment_facts();

/// What a record shows of an environment variable: the value, or only that it is "set" where it may name a machine, a
/// card or a path; of preloaded libraries their names.
std::string recorded_value(const std::string& name, const std::string& value);

/// The text without names of folders: of a library's file its name is left, of any other path that there is one, "-I#".
std::string without_paths(const std::string& text);

/// "environment" of a build: what its compilers found in theirs, of lines as NAME=VALUE.
nlohmann::ordered_json build_environment(const std::string& lines);

}  // namespace gpulift
