#include <cuda_runtime_api.h>

#include <memory>

#include "core/cuda/check.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"
#include "core/host/testing/counted_spin.hpp"
#include "core/host/testing/faults/fault.hpp"
#include "kernels/spin.hpp"
#include "workloads/recorded_graph.hpp"

namespace {

using namespace gpulift::testing_faults;
using namespace gpulift::testing_techniques;
using gpulift::StreamHandle;

constexpr int kKernels = 50;

void launch_all(const Counter& counter, StreamHandle stream) {
  for (int i = 0; i < kKernels; ++i) gpulift::launch_empty(counter->data(), stream);
}

gpulift::Step make_step(const Counter& counter) {
  gpulift::Step launches = [counter](StreamHandle stream) { launch_all(counter, stream); };
  if (is_faulty()) return launches;
  const auto graph = std::make_shared<const gpulift::UniqueGraphExec>(gpulift::record_graph(launches));
  return [counter, graph](StreamHandle stream) { gpulift::check(cudaGraphLaunch(graph->get(), stream)); };
}

void run(gpulift::Trial& trial) {
  const Counter counter = make_counter(trial.device());
  trial.cost({.items = kKernels, .roof = {}});
  trial.check(expect_kernels(counter, kKernels));
  trial.compare({{.name = "step", .make = [&] { return make_step(counter); }, .clock = gpulift::Clock::kHost}});
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
