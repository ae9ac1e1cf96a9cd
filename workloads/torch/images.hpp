#pragma once

#include <torch/types.h>

#include <cstdint>

#include "workload.hpp"

namespace gpulift {

/// Synthetic images [N, 3, pixels, pixels], normally distributed, with classes [N] that have nothing to do with them:
/// what a step costs depends on neither. From torch's default generator, on the host.
Batch synthetic_images(std::int64_t batch_size, std::int64_t pixels, std::int64_t classes);

/// Synthetic images that can be told apart: noise on top of a wave whose direction and length belong to the class.
Batch synthetic_patterns(std::int64_t batch_size, std::int64_t pixels, std::int64_t classes);

/// SGD with a small rate: at 0.01, ResNet-18 knows a batch by heart within five steps, and two layouts in FP32 differ
/// by a third in what loss is left.
OptimizerRule image_rule();

}  // namespace gpulift
