#include "allocator_case.hpp"

#include <cstddef>

#include "gpt.hpp"
#include "step_times.hpp"

namespace gpulift {

TrainingComparison compare_allocators(Trial& trial, const std::string& model) {
  const bool is_gpt = model == "gpt2";
  // Losses after each of 10 steps, or after two rounds of the encoder's 8 batches.
  return TrainingComparison(trial, make_workload(model, is_gpt ? 4 : 16), is_gpt ? 10 : 2);
}

TrainingOptions allocator_options() {
  TrainingOptions options{.precision = Precision::kBf16};
  options.prepare = [](Model& model) {
    if (auto* gpt = dynamic_cast<Gpt*>(&model)) gpt->use_attention(Attention::kExplicit);
  };
  return options;
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
