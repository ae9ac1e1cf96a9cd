#pragma once
// JSON as records hold it, in place of nlohmann/json.hpp: its templates are compiled once, in json.cpp, and not in
// every file that includes it.

#include <nlohmann/json.hpp>
#include <optional>

extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace gpulift {

/// What is not known has no key.
template <typename T>
void put(nlohmann::ordered_json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

}  // namespace gpulift
