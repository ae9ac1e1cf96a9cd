#include "largest_batch.hpp"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace gpulift {
namespace {

constexpr int kAttempts = 6;
constexpr double kEnough = 0.99;  // of the budget: at each further batch cuDNN searches all its kernels anew

struct Measured {
  std::int64_t batch_size;
  double peak_bytes;
};

/// Where the line through both measurements meets the budget.
std::int64_t extrapolated(const Measured& first, const Measured& second, double budget_bytes) {
  const double bytes_per_item =
      (second.peak_bytes - first.peak_bytes) / static_cast<double>(second.batch_size - first.batch_size);
  if (bytes_per_item <= 0) throw std::runtime_error("peak memory does not grow with the batch");
  const double more = (budget_bytes - second.peak_bytes) / bytes_per_item;
  return second.batch_size + static_cast<std::int64_t>(std::floor(more));
}

}  // namespace

std::int64_t largest_batch(const std::function<double(std::int64_t batch_size)>& peak_bytes_of, std::int64_t probe,
                           double budget_bytes) {
  Measured first{probe, peak_bytes_of(probe)};
  if (first.peak_bytes > budget_bytes) {
    throw std::runtime_error("a batch of " + std::to_string(probe) + " needs " + std::to_string(first.peak_bytes) +
                             " bytes, which is more than the budget");
  }
  Measured second{2 * probe, peak_bytes_of(2 * probe)};
  std::int64_t fits = first.batch_size;
  std::int64_t too_large = second.peak_bytes > budget_bytes ? second.batch_size : 0;  // 0: none is known
  if (too_large == 0) fits = second.batch_size;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::int64_t next = extrapolated(first, second, budget_bytes);
    if (too_large > 0 && (next <= fits || next >= too_large)) next = (fits + too_large) / 2;
    if (next <= fits) break;
    first = second;
    second = {next, peak_bytes_of(next)};
    if (second.peak_bytes > budget_bytes) {
      too_large = next;
    } else {
      fits = next;
      if (second.peak_bytes >= kEnough * budget_bytes) break;
    }
  }
  return fits;
}

double peak_bytes_of_step(const TorchSession& session, const Workload& workload, const TrainingOptions& options,
                          std::uint64_t seed) {
  const torch::DeviceIndex device = session.device().index();
  const auto allocated = [device] {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device);
    return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  };
  double peak_bytes = 0;
  session.run(nullptr, [&] {
    at::cuda::clearCublasWorkspaces();  // else the first measurement alone would have them
    const auto before_bytes = allocated().current;
    {
      TrainingRun run(workload, options, session.device(), seed);
      run.step();
      c10::cuda::CUDACachingAllocator::resetPeakStats(device);
      run.step();
      peak_bytes = static_cast<double>(allocated().peak - before_bytes);
    }
    c10::cuda::CUDACachingAllocator::emptyCache();
  });
  return peak_bytes;
}

std::int64_t largest_batch_of(Trial& trial, const TorchSession& session, const std::string& arm,
                              const std::string& workload, const TrainingOptions& options, std::int64_t probe) {
  const std::string key = "largest_batch_" + arm;
  const auto known = trial.recall(key);
  const auto peak_bytes = [&](std::int64_t batch_size) {
    return peak_bytes_of_step(session, make_workload(workload, batch_size), options, trial.seed());
  };
  const std::int64_t found = known ? std::stoll(*known) : largest_batch(peak_bytes, probe, kArmBudget_bytes);
  trial.note(key, std::to_string(found));
  return found;
}

}  // namespace gpulift
