#include "step_graph.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <utility>

#include "core/cuda/check.hpp"

namespace gpulift {
namespace {

constexpr int kRehearsedSteps = 3;  // as torch's notes on graphs advise

auto allocated(torch::DeviceIndex device) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device);
  return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

/// Leaves the stream as it was. What made the recording fail is thrown already and says more.
void end_broken_recording(at::cuda::CUDAGraph& graph) {
  try {
    graph.capture_end();
  } catch (const c10::Error&) {
    static_cast<void>(cudaGetLastError());
  }
}

void take(TrainingRun& run, StepGraph::Part part) {
  switch (part) {
    case StepGraph::Part::kForwardBackward:
      return run.forward_backward();
    case StepGraph::Part::kUpdate:
      return run.update();
    case StepGraph::Part::kWholeStep:
      return run.step();
  }
}

}  // namespace

void capture(at::cuda::CUDAGraph& graph, const std::function<void()>& work) {
  c10::cuda::CUDACachingAllocator::emptyCache();  // a capture has memory of its own, and meanwhile none is given back
  graph.capture_begin({0, 0}, cudaStreamCaptureModeRelaxed);
  try {
    work();
  } catch (...) {
    end_broken_recording(graph);
    throw;
  }
  graph.capture_end();
}

StepGraph::StepGraph(std::shared_ptr<TrainingRun> run, const MakeRehearsal& make_rehearsal, Part part)
    : run_(std::move(run)), part_(part) {
  const torch::Device device = run_->batch().input.device();
  if (!device.is_cuda()) throw std::invalid_argument("a step on the host cannot be recorded as a CUDA graph");
  if (run_->batches() != 1) throw std::invalid_argument("a graph of a step holds one batch, and this run has more");
  if (part_ == Part::kUpdate && !run_->keeps_gradients()) {
    throw std::invalid_argument("a graph of the update holds the addresses of gradients, and this run frees its own");
  }
  graph_ = std::make_unique<at::cuda::CUDAGraph>(/*keep_graph=*/true);  // so that its nodes can be counted
  check(cudaDeviceSynchronize());                                       // what made both runs ran on another stream
  // The default stream cannot be recorded. The rehearsal runs on the same stream as the recording, since libraries keep
  // a workspace for each.
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
  {
    const auto rehearsal = make_rehearsal();
    for (int i = 0; i < kRehearsedSteps; ++i) rehearsal->step();
    check(cudaDeviceSynchronize());
  }
  c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
  capture(*graph_, [this] { take(*run_, part_); });
  const auto bytes = allocated(device.index());
  passing_bytes_ = static_cast<double>(bytes.peak - bytes.current);
  check(cudaGraphGetNodes(graph_->raw_cuda_graph(), nullptr, &nodes_));
  graph_->instantiate();
  check(cudaDeviceSynchronize());
}

StepGraph::~StepGraph() = default;

void StepGraph::replay() { graph_->replay(); }

void StepGraph::step() {
  if (part_ == Part::kUpdate) run_->forward_backward();
  replay();
  if (part_ == Part::kForwardBackward) run_->update();
}

}  // namespace gpulift
