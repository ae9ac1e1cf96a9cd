#pragma once

#include <cstdint>
#include <string>

#include "precision.hpp"
#include "training.hpp"
#include "training_comparison.hpp"

namespace gpulift {

/// How a model is trained where Python arms train it too: TWINS of workloads/python/gpulift_work/training.py says the
/// same.
struct Twin {
  std::int64_t batch_size;
  Precision precision;
  bool channels_last = false;
  double tolerance = 0;    // of the losses of 5 steps, relative to FP32 or, in Python, TF32
  std::string model = {};  // where it is not the twin's name: the same model with another batch

  TrainingOptions options() const { return {.precision = precision, .channels_last = channels_last}; }
};

/// Throws std::invalid_argument for a model that has none.
Twin twin_named(const std::string& model);

/// The comparison of a case whose axis "model" names a twin. Skips where its steps need a GPU and there is none.
TrainingComparison compare_twins(Trial& trial);
/// The Python arm of that name that trains the case's model.
Arm python_twin(Trial& trial, const TrainingComparison& comparison, const std::string& name);

}  // namespace gpulift
