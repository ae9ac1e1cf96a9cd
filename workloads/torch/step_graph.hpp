#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "training.hpp"

namespace at::cuda {
struct CUDAGraph;
}

namespace gpulift {

/// Captures what `work` launches on torch's current stream, which must not be the default one, and runs none of it. The
/// stream is as it was where `work` throws.
void capture(at::cuda::CUDAGraph& graph, const std::function<void()>& work);

/// A training step, or a part of it, recorded once as a CUDA graph and replayed from then on, with the run's one batch.
/// Recording runs nothing: the run is as it was made, and its first replay is its first step.
class StepGraph {
 public:
  enum class Part {
    kForwardBackward,  // the optimizer steps eagerly behind it
    kUpdate,           // forward and backward run eagerly before it; the run keeps its gradients
    kWholeStep,
  };

  /// A run like the other, which takes some steps before the recording and is thrown away: libraries search for
  /// algorithms, load kernels and allocate then, which a graph cannot hold.
  using MakeRehearsal = std::function<std::unique_ptr<TrainingRun>()>;
  /// Throws std::invalid_argument for a run on the host, with more batches than one, or whose gradients a graph of the
  /// update would not find again.
  StepGraph(std::shared_ptr<TrainingRun> run, const MakeRehearsal& make_rehearsal, Part part);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// One step on the current stream.
  void step();
  /// The recorded part of it alone.
  void replay();
  /// Kernels, copies and fills of one replay.
  std::size_t nodes() const { return nodes_; }
  /// What lay in torch's allocator at the peak of the recording and no longer at its end: the graph needs it at every
  /// replay, and the allocator does not see it again.
  double passing_bytes() const { return passing_bytes_; }

 private:
  std::shared_ptr<TrainingRun> run_;
  Part part_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
  std::size_t nodes_ = 0;
  double passing_bytes_ = 0;
};

}  // namespace gpulift
