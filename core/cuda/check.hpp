#pragma once
// check(): throws gpulift::Error (or a class derived from it) unless the call succeeded, and clears the runtime's
// last error. Overloaded for each library in a header of its own, so that only users of a library see its headers.

#include <cuda_runtime_api.h>

#include "error.hpp"

namespace gpulift {

void check(cudaError_t status, const std::source_location& place = std::source_location::current());

}  // namespace gpulift
