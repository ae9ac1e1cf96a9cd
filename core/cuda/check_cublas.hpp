#pragma once

#include <cublas_api.h>

#include "error.hpp"

namespace gpulift {

void check(cublasStatus_t status, const std::source_location& place = std::source_location::current());

}  // namespace gpulift
