#pragma once

#include <functional>
#include <string>

#include "training_comparison.hpp"

namespace gpulift {

/// What the techniques on torch's allocator train in BF16: "encoder" (16 rows, the lengths vary from batch to batch),
/// "gpt2" (4 rows, always the same shapes), or "encoder_toy". Runs repeat themselves bit for bit, so that arms can be
/// checked exactly: attention is explicit, since the backward pass of the fused kernels adds in any order.
TrainingComparison compare_allocators(Trial& trial, const std::string& model);
TrainingOptions allocator_options();

/// The loss, which is the same in every arm at this place, and the times of single training steps, each with
/// `after_step` and what it waits for.
Metrics allocator_metrics(TrainingRun& run, torch::Device device, const std::function<void()>& after_step = {});

}  // namespace gpulift
