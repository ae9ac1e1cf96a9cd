#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <memory>

#include "core/cuda/buffer.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"
#include "kernels/spin.hpp"
#include "workloads/device_time.hpp"
#include "workloads/recorded_graph.hpp"

namespace {

using gpulift::Arm;
using gpulift::check;
using gpulift::StreamHandle;

/// A chain of kernels of known length, each of which adds 1 to the counter.
struct Chain {
  void enqueue(StreamHandle stream) const {
    for (std::int64_t i = 0; i < kernels; ++i) gpulift::spin(cycles, counter, stream);
  }
  std::int64_t kernels;
  std::int64_t cycles;
  std::uint64_t* counter;
};

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const gpulift::DeviceBuffer<std::uint64_t> counter(device, 1);
  const Chain chain{.kernels = trial.number("kernels"),
                    .cycles = gpulift::cycles_in(device, 1e-6 * static_cast<double>(trial.number("kernel_us"))),
                    .counter = counter.data()};

  trial.cost({.items = static_cast<double>(chain.kernels), .roof = {}});
  trial.check(
      {.meaning = "count of kernels",
       .poison = [&](StreamHandle stream) { check(cudaMemsetAsync(counter.data(), 0, counter.bytes(), stream)); },
       .error =
           [&](StreamHandle stream) {
             std::uint64_t count = 0;
             check(cudaMemcpyAsync(&count, counter.data(), sizeof count, cudaMemcpyDeviceToHost, stream));
             check(cudaStreamSynchronize(stream));
             return std::abs(static_cast<double>(count) - static_cast<double>(chain.kernels));
           },
       .tolerance = 0});

  // Launches are host work, so the host's clock judges: from the first launch to the end of the last kernel.
  trial.compare({Arm{.name = "stream_launches",
                     .make = [&] { return [&](StreamHandle stream) { chain.enqueue(stream); }; },
                     .clock = gpulift::Clock::kHost},
                 Arm{.name = "graph_replay",
                     .make =
                         [&] {
                           auto graph = std::make_shared<const gpulift::UniqueGraphExec>(
                               gpulift::record_graph([&](StreamHandle stream) { chain.enqueue(stream); }));
                           return [graph](StreamHandle stream) { check(cudaGraphLaunch(graph->get(), stream)); };
                         },
                     .clock = gpulift::Clock::kHost}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does replaying a CUDA graph save over launching its kernels one by one?",
    .expectation = R"(
        Launched one by one, a kernel costs the host about 2 us, and the device about 1 us between one kernel and the
        next; the slower of the two decides: max(2, t + 1) us for a kernel of t us. In a graph of n kernels the host
        pays about 2.5 us + n * 1 ns for all, and the gap shrinks to 0.5 to 1 us: t + 0.7 us. So kernels of 2 us gain
        3.0 / 2.7 = 1.1 times, more where the host is slow to launch, and kernels of 50 us nothing (51.0 / 50.7 =
        1.006). Graphs of 10 kernels gain least, since each replay starts anew.)",
    .predict = {{.arm = "graph_replay", .cases = {{"kernel_us", 2}}, .on = "nvidia", .speedup = {{0.99, 1.21}}},
                {.arm = "graph_replay", .cases = {{"kernel_us", 50}}, .on = "nvidia", .speedup = {{0.95, 1.05}}}},
    .launch_bound = true,
    .arms = {"stream_launches", "graph_replay"},
    .l2 = gpulift::Cache::kNone,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"kernel_us", {2, 50}}, {"kernels", {10, 100, 1000}}},
    .quick = {{{"kernel_us", 2}, {"kernels", 100}}, {{"kernel_us", 50}, {"kernels", 10}}},
    .run = run,
};
