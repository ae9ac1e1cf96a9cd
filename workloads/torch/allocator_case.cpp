#include "allocator_case.hpp"

#include <torch/cuda.h>

#include <cstddef>

#include "step_times.hpp"

namespace gpulift {

TrainingComparison compare_allocators(Trial& trial, const std::string& model) {
  const bool is_gpt = model == "gpt2";
  // Losses after each of 10 steps, or after two rounds of the encoder's 8 batches.
  return TrainingComparison(trial, make_workload(model, is_gpt ? 8 : 16), is_gpt ? 10 : 2);
}

TrainingOptions allocator_options() { return {.precision = Precision::kBf16}; }

double allocator_tolerance(const TorchSession& session) {
  constexpr double kOnDevice = 0.02;  // a step of GPT-2 lost or repeated moves its losses by 0.1 and more
  return session.on_device() ? kOnDevice : 0;
}

Metrics allocator_metrics(TrainingRun& run, torch::Device device, const std::function<void()>& after_step) {
  const auto step_and_wait = [&] {
    run.step();
    if (after_step) after_step();
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
  };
  // What was asked before has emptied the cache: it gets warm again.
  for (std::size_t i = 0; i < run.batches(); ++i) step_and_wait();
  Metrics metrics{{"loss", run.loss().item<double>()}};
  metrics.merge(step_percentiles(step_and_wait));
  return metrics;
}

}  // namespace gpulift
