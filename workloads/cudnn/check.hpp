#pragma once

#include <cudnn.h>

#include <source_location>
#include <string>

#include "core/cuda/error.hpp"

namespace gpulift {

inline void check(cudnnStatus_t status, const std::source_location& place = std::source_location::current()) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(describe_failure("cuDNN", "error " + std::to_string(status), cudnnGetErrorString(status), place));
}

}  // namespace gpulift
