#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/check.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"

namespace gpulift {

/// What a step enqueues, recorded once, and uploaded, so that the first replay is like all others.
inline UniqueGraphExec record_graph(const Step& step) {
  const UniqueStream stream = make_stream();
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  step(stream.get());
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(stream.get(), &captured));
  const UniqueGraph graph(captured);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), 0));
  UniqueGraphExec owned(executable);
  check(cudaGraphUpload(owned.get(), stream.get()));
  check(cudaStreamSynchronize(stream.get()));
  return owned;
}

}  // namespace gpulift
