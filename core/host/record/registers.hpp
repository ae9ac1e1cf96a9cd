#pragma once

#include "core/harness/json.hpp"
// Tables that this program shares with the Python package: core/registers/, in the program since it was built.

namespace gpulift {

const nlohmann::json& peaks();
const nlohmann::json& roofs();
const nlohmann::json& slowdowns();

}  // namespace gpulift
