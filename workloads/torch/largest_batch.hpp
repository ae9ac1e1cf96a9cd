#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/harness/technique.hpp"
#include "torch_session.hpp"
#include "training.hpp"

namespace gpulift {

/// The largest batch whose peak stays within the budget: measured at `probe` and twice that, extrapolated along the
/// line through the two latest measurements, and verified. Where memory does not grow along a line, a batch that takes
/// at least 99 % of the budget, or else one that is at most some percent below the largest. Throws std::runtime_error
/// where `probe` does not fit.
std::int64_t largest_batch(const std::function<double(std::int64_t batch_size)>& peak_bytes_of, std::int64_t probe,
                           double budget_bytes);

/// Peak of allocated device memory within one training step that is not the first (whose searches for algorithms need
/// more), beyond what was held before the run was made. Needs a device.
double peak_bytes_of_step(const TorchSession& session, const Workload& workload, const TrainingOptions& options,
                          std::uint64_t seed);

/// What an arm may hold at its largest batch: several arms then fit beside one another on a card of 80 GB.
inline constexpr double kArmBudget_bytes = 12.0 * (std::int64_t{1} << 30);

/// The largest batch of a workload that an arm can train within kArmBudget_bytes. Searched in the first launch alone
/// and noted as "largest_batch_<arm>", so that all launches have the same.
std::int64_t largest_batch_of(Trial& trial, const TorchSession& session, const std::string& arm,
                              const std::string& workload, const TrainingOptions& options, std::int64_t probe);

}  // namespace gpulift
