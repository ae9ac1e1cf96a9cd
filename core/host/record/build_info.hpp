#pragma once

#include "core/harness/json.hpp"

namespace gpulift {

/// "build" of a record's context: compilers, linker, build type, the flags that CMake hands to them, what of the
/// environment they read, architectures, commit and whether the work tree differed from it when this program was built,
/// which is absent where the commit is unknown. Generated into one source file, so that a commit recompiles that file
/// alone.
nlohmann::ordered_json build_facts();

}  // namespace gpulift
