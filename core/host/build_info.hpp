#pragma once

#include <nlohmann/json.hpp>

namespace gpulift {

/// "build" of a record's context: compilers, build type, architectures, commit and whether the work tree differed from
/// it when this program was built. Generated into one source file, so that a commit recompiles that file alone.
nlohmann::ordered_json build_facts();

}  // namespace gpulift
