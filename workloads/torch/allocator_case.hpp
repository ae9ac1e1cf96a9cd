#pragma once

#include <functional>
#include <string>

#include "training_comparison.hpp"

namespace gpulift {

/// What the techniques on torch's allocator train in BF16: "encoder" (16 rows, the lengths vary from batch to batch),
/// "gpt2" (8 rows, always the same shapes), or "encoder_toy", with the kernels that torch takes by itself.
TrainingComparison compare_allocators(Trial& trial, const std::string& model);
TrainingOptions allocator_options();
/// How far the losses of arms may be apart, relative to the first: some of a device's kernels add in any order; a host
/// repeats each step bit for bit.
double allocator_tolerance(const TorchSession& session);

/// The loss, and the times of single training steps, each with
/// `after_step` and what it waits for.
Metrics allocator_metrics(TrainingRun& run, torch::Device device, const std::function<void()>& after_step = {});

}  // namespace gpulift
