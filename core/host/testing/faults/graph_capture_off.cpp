#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <memory>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"
#include "core/host/testing/faults/fault.hpp"
#include "kernels/spin.hpp"

namespace {

using namespace gpulift::testing_faults;
using gpulift::check;
using gpulift::StreamHandle;

constexpr int kKernels = 50;

void launch_all(std::uint64_t* counter, StreamHandle stream) {
  for (int i = 0; i < kKernels; ++i) gpulift::launch_empty(counter, stream);
}

gpulift::UniqueGraphExec record(std::uint64_t* counter) {
  const gpulift::UniqueStream stream = gpulift::make_stream();
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  launch_all(counter, stream.get());
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(stream.get(), &captured));
  const gpulift::UniqueGraph graph(captured);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), 0));
  gpulift::UniqueGraphExec owned(executable);
  check(cudaGraphUpload(owned.get(), stream.get()));
  check(cudaStreamSynchronize(stream.get()));
  return owned;
}

gpulift::Step make_step(std::uint64_t* counter) {
  if (is_faulty()) {
    return [counter](StreamHandle stream) { launch_all(counter, stream); };
  } else {
    const auto graph = std::make_shared<const gpulift::UniqueGraphExec>(record(counter));
    return [graph](StreamHandle stream) { check(cudaGraphLaunch(graph->get(), stream)); };
  }
}

void run(gpulift::Trial& trial) {
  const gpulift::DeviceBuffer<std::uint64_t> counter(trial.device(), 1);
  trial.cost({.items = kKernels, .roof = {}});
  trial.check(
      {.meaning = "count of kernels",
       .poison = [&](StreamHandle stream) { check(cudaMemsetAsync(counter.data(), 0, counter.bytes(), stream)); },
       .error =
           [&](StreamHandle stream) {
             std::uint64_t count = 0;
             check(cudaMemcpyAsync(&count, counter.data(), sizeof count, cudaMemcpyDeviceToHost, stream));
             check(cudaStreamSynchronize(stream));
             return std::abs(static_cast<double>(count) - kKernels);
           }});
  trial.compare({{.name = "step", .make = [&] { return make_step(counter.data()); }, .clock = gpulift::Clock::kHost}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is it found when a step is no longer replayed from a graph?",
    .expectation = R"(
        A replay of 50 empty kernels costs the host 1.2 us and the device 1.0 to 1.4 us a kernel: 50 to 70 us. Launched
        one by one, each costs the host 2.6 us: 130 us, 1.8 to 2.6 times as long, all of it issuing.)",
    .arms = {"step"},
    .quick = {{}},
    .run = run,
};
