#pragma once

#include <cstdint>
#include <string>

#include "precision.hpp"
#include "training.hpp"

namespace gpulift {

/// How a model is trained where Python arms train it too: TWINS of core/python/gpulift_training.py says the same.
struct Twin {
  std::int64_t batch_size;
  Precision precision;
  bool channels_last = false;
  double tolerance = 0;  // of the losses of 20 steps, relative to FP32

  TrainingOptions options() const { return {.precision = precision, .channels_last = channels_last}; }
};

/// Throws std::invalid_argument for a model that has none.
Twin twin_named(const std::string& model);

}  // namespace gpulift
