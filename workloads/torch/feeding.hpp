#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/harness/technique.hpp"
#include "training.hpp"

namespace gpulift {

/// How a new batch comes from the host to the device in every step.
enum class Feed {
  kPageable,     // from pageable memory; the host waits for the copy
  kNonBlocking,  // from pinned memory, enqueued before the step
  kPrefetch,     // from pinned memory, on another stream during the step before
};

/// Two numbers that tell batches apart: a sum of the images or values, and one of the targets by place. Enqueued where
/// the batch is.
torch::Tensor fingerprint(const Batch& batch);

/// Training in which every step learns from the next of a few host batches, in turn.
class FedRun {
 public:
  static constexpr std::size_t kPool = 4;

  /// `side_stream` is where kPrefetch copies; the other two need none, nor a GPU.
  FedRun(const Workload& workload, const TrainingOptions& options, torch::Device device, std::uint64_t seed, Feed feed,
         StreamHandle side_stream = nullptr);
  ~FedRun();
  FedRun(const FedRun&) = delete;
  FedRun& operator=(const FedRun&) = delete;

  void step();
  const torch::Tensor& loss() const { return run_.loss(); }

  /// Until asked, every step reads its batch twice more, before and after, as the device then sees it. Steps whose
  /// batch was not the one due; those after are not watched.
  std::size_t wrong_steps();

  double copied_bytes() const;  // per step

 private:
  class Prefetcher;

  Batch next();

  torch::Device device_;
  Feed feed_;
  TrainingRun run_;
  std::vector<Batch> pool_;  // on the host, in the layout that the run takes
  std::unique_ptr<Prefetcher> prefetcher_;
  std::size_t steps_ = 0;
  bool watched_ = true;
  std::vector<torch::Tensor> seen_;  // two fingerprints of every step
};

}  // namespace gpulift
