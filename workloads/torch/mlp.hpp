#pragma once

#include <cstdint>

#include "workload.hpp"

namespace gpulift {

/// Eight square linear layers of 4096 with ReLU between them: products and little else. The loss is the mean squared
/// error against seeded values.
Workload mlp_workload(std::int64_t batch_size);

}  // namespace gpulift
