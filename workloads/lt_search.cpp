#include "workloads/lt_search.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <vector>

#include "core/cuda/check.hpp"
#include "core/cuda/check_cublas.hpp"
#include "core/cuda/error.hpp"
#include "core/cuda/handles.hpp"
#include "workloads/deadline.hpp"
#include "workloads/lt_operation.hpp"

namespace gpulift {
namespace {

constexpr double kSearchWindow_s = 1e-3;

struct Timed {
  cublasLtMatmulAlgo_t algorithm;
  double time_s;
};

/// Leaves the device idle, so that it can return to its boost clock.
void rest(double rest_s) {
  if (rest_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(rest_s));
}

/// Runs a candidate twice, the first time untimed because it may have to load its kernel. Nothing if it will not run.
std::optional<double> first_time_s(const cublasLtMatmulAlgo_t& algorithm, const TryLtAlgorithm& enqueue,
                                   cudaStream_t stream) {
  if (enqueue(algorithm, stream) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  const UniqueEvent start = make_timing_event();
  const UniqueEvent stop = make_timing_event();
  check(cudaEventRecord(start.get(), stream));
  check(enqueue(algorithm, stream));
  check(cudaEventRecord(stop.get(), stream));
  check(cudaStreamSynchronize(stream));
  float time_ms = 0;
  check(cudaEventElapsedTime(&time_ms, start.get(), stop.get()));
  return static_cast<double>(time_ms) / 1e3;
}

/// Time of one product in a window of about `window_s`, played from a graph so that the host's launches do not limit
/// it.
double window_time_s(const Timed& candidate, double window_s, const TryLtAlgorithm& enqueue, cudaStream_t stream) {
  constexpr int kMostSteps = 100;
  const int steps = std::clamp(static_cast<int>(std::ceil(window_s / candidate.time_s)), 1, kMostSteps);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  for (int step = 0; step < steps && status == CUBLAS_STATUS_SUCCESS; ++step) {
    status = enqueue(candidate.algorithm, stream);
  }
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  const UniqueGraph graph(captured);
  check(status);
  check(ended);
  cudaGraphExec_t instantiated = nullptr;
  check(cudaGraphInstantiate(&instantiated, graph.get(), 0));
  const UniqueGraphExec executable(instantiated);
  check(cudaGraphUpload(executable.get(), stream));

  const UniqueEvent start = make_timing_event();
  const UniqueEvent stop = make_timing_event();
  check(cudaEventRecord(start.get(), stream));
  check(cudaGraphLaunch(executable.get(), stream));
  check(cudaEventRecord(stop.get(), stream));
  check(cudaStreamSynchronize(stream));
  float time_ms = 0;
  check(cudaEventElapsedTime(&time_ms, start.get(), stop.get()));
  return static_cast<double>(time_ms) / 1e3 / steps;
}

}  // namespace

LtFound search_lt(std::span<const cublasLtMatmulHeuristicResult_t> candidates, const MatmulSearch& search,
                  const TryLtAlgorithm& enqueue) {
  constexpr std::size_t kFinalists = 6;
  constexpr int kRounds = 3;
  constexpr double kShort_s = 200e-6;  // below it, one product between two events is too coarse
  const Deadline first_half(search.budget_s / 2);
  const Deadline deadline(search.budget_s);
  const UniqueStream stream = make_stream();
  std::vector<Timed> timed;
  std::size_t tried = 0;
  for (const auto& candidate : candidates) {
    if (!timed.empty() && first_half.passed()) break;
    ++tried;
    std::optional<double> time_s = first_time_s(candidate.algo, enqueue, stream.get());
    if (!time_s) continue;
    if (*time_s < kShort_s) time_s = window_time_s({candidate.algo, *time_s}, kSearchWindow_s, enqueue, stream.get());
    timed.push_back({candidate.algo, *time_s});
  }
  if (timed.empty()) throw NotSupported("none of cuBLASLt's algorithms runs this type and shape on this device");
  std::ranges::sort(timed, {}, &Timed::time_s);

  // The fastest few are timed again, in turn, so that a drift of the clock meets all of them; the best window counts.
  if (timed.size() > kFinalists) timed.erase(timed.begin() + kFinalists, timed.end());
  const std::vector<Timed> finalists = timed;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < finalists.size() && !deadline.passed(); ++i) {
      rest(search.rest_s);
      const double time_s = window_time_s(finalists[i], kSearchWindow_s, enqueue, stream.get());
      timed[i].time_s = round == 0 ? time_s : std::min(timed[i].time_s, time_s);
    }
  }
  const Timed best = *std::ranges::min_element(timed, {}, &Timed::time_s);
  return {best.algorithm, best.time_s,
          describe_lt_algorithm(best.algorithm) + "; " + std::to_string(tried) + " of " +
              std::to_string(candidates.size()) + " candidates timed"};
}

double lt_time_s(const cublasLtMatmulAlgo_t& algorithm, double window_s, double rest_s, const TryLtAlgorithm& enqueue) {
  const UniqueStream stream = make_stream();
  const double step_s = first_time_s(algorithm, enqueue, stream.get()).value();
  rest(rest_s);
  return window_time_s({algorithm, step_s}, window_s, enqueue, stream.get());
}

}  // namespace gpulift
