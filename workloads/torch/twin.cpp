#include "twin.hpp"

#include <map>
#include <stdexcept>

namespace gpulift {
namespace {

const std::map<std::string, Twin>& twins() {
  static const std::map<std::string, Twin> all{
      {"resnet50", {.batch_size = 64, .precision = Precision::kBf16, .channels_last = true, .tolerance = 0.01}},
      // Where the device bounds a step: at 64 images the host does.
      {"resnet50_128",
       {.batch_size = 128,
        .precision = Precision::kBf16,
        .channels_last = true,
        .tolerance = 0.01,
        .model = "resnet50"}},
      {"resnet18", {.batch_size = 32, .precision = Precision::kFp32, .tolerance = 0.001}},
      {"gpt2", {.batch_size = 8, .precision = Precision::kBf16, .tolerance = 0.02}},
      {"gpt_small", {.batch_size = 1, .precision = Precision::kBf16, .tolerance = 0.05}},
      {"gpt_toy", {.batch_size = 8, .precision = Precision::kFp32, .tolerance = 0.001}},
      {"llama_1b", {.batch_size = 2, .precision = Precision::kBf16, .tolerance = 0.02}},
      {"llama_toy", {.batch_size = 8, .precision = Precision::kFp32, .tolerance = 0.001}},
      {"lstm", {.batch_size = 64, .precision = Precision::kBf16, .tolerance = 0.05}},
      {"mlp", {.batch_size = 256, .precision = Precision::kBf16, .tolerance = 0.05}}};
  return all;
}

}  // namespace

Twin twin_named(const std::string& model) {
  const auto found = twins().find(model);
  if (found == twins().end()) throw std::invalid_argument("no model with a twin in Python is called " + model);
  return found->second;
}

TrainingComparison compare_twins(Trial& trial) {
  const std::string model = trial.word("model");
  const Twin twin = twin_named(model);
  if (!trial.has_device() && twin.precision == Precision::kBf16) {
    trial.skip("steps of this size take seconds without a GPU", "run it on a machine with a GPU");
  }
  trial.note("batch", std::to_string(twin.batch_size));
  return {trial, make_workload(twin.model.empty() ? model : twin.model, twin.batch_size)};
}

Arm python_twin(Trial& trial, const TrainingComparison& comparison, const std::string& name) {
  Arm arm = python_arm(name);
  arm.cost = comparison.cost(twin_named(trial.word("model")).precision);
  return arm;
}

}  // namespace gpulift
