#pragma once

#include <cstdint>
#include <functional>

#include "torch_session.hpp"
#include "training.hpp"

namespace gpulift {

/// The largest batch whose peak stays within the budget: measured at `probe` and twice that, extrapolated along the
/// line through the two latest measurements, and verified. Where memory does not grow along a line, a batch that fits
/// and is at most some percent below the largest. Throws std::runtime_error where `probe` does not fit.
std::int64_t largest_batch(const std::function<double(std::int64_t batch_size)>& peak_bytes_of, std::int64_t probe,
                           double budget_bytes);

/// Peak of allocated device memory within one training step that is not the first (whose searches for algorithms need
/// more), beyond what was held before the run was made. Needs a device.
double peak_bytes_of_step(const TorchSession& session, const Workload& workload, const TrainingOptions& options,
                          std::uint64_t seed);

}  // namespace gpulift
