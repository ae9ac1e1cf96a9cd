// What it costs to take device memory and give it back within a step.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "core/cuda/device.hpp"
#include "core/cuda/error.hpp"
#include "core/harness/technique.hpp"
#include "workloads/allocation_trace.hpp"
#include "workloads/device_allocators.hpp"

namespace {

using gpulift::AllocationTrace;
using gpulift::Device;
using gpulift::DeviceAllocator;
using gpulift::TraceReplay;

AllocationTrace trace_named(const std::string& name) {
  if (name == "training") return gpulift::gpt_training_trace({});
  return gpulift::single_block_trace(std::size_t{1} << 20);
}

using MakeAllocator = std::function<std::unique_ptr<DeviceAllocator>(Device&, const AllocationTrace&)>;

std::unique_ptr<DeviceAllocator> make_malloc(Device& device, const AllocationTrace&) {
  return gpulift::make_malloc_allocator(device);
}
/// The threshold of 0 is what the system's own pool has by default.
std::unique_ptr<DeviceAllocator> make_pool_default(Device& device, const AllocationTrace&) {
  return gpulift::make_pool_allocator(device, 0);
}
std::unique_ptr<DeviceAllocator> make_pool_keeping_all(Device& device, const AllocationTrace&) {
  return gpulift::make_pool_allocator(device, std::numeric_limits<std::uint64_t>::max());
}
std::unique_ptr<DeviceAllocator> make_arena(Device& device, const AllocationTrace& trace) {
  return gpulift::make_arena_allocator(device, trace.total_bytes(gpulift::kArenaAlignment));
}

void run(gpulift::Trial& trial) {
  Device& device = trial.device();
  const AllocationTrace trace = trace_named(trial.word("trace"));
  gpulift::Cost cost;
  cost.items = static_cast<double>(trace.blocks());
  trial.cost(cost);
  trial.note("peak_bytes", std::to_string(trace.peak_bytes()));

  std::weak_ptr<TraceReplay> current;  // of the arm that was made last
  trial.check({.meaning = "exact: no two live blocks overlap, and each keeps what was written to both its ends",
               .poison = [&](gpulift::StreamHandle) { current.lock()->watch(); },
               .error = [&](gpulift::StreamHandle) { return current.lock()->errors(); }});

  const auto arm = [&](const std::string& name, MakeAllocator make) {
    const auto make_step = [&, make]() -> gpulift::Step {
      auto replay = std::make_shared<TraceReplay>(device, trace, make(device, trace));
      current = replay;
      return [replay](gpulift::StreamHandle stream) { replay->run(stream); };
    };
    return gpulift::Arm{.name = name, .make = make_step, .clock = gpulift::Clock::kHost};
  };
  trial.compare({arm("cuda_malloc", make_malloc), arm("malloc_async_default", make_pool_default),
                 arm("malloc_async_pooled", make_pool_keeping_all), arm("arena", make_arena)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does it cost to allocate and free device memory in every step, and what avoids it?",
    .expectation = R"(
        H200, one GPT-2 124M step of 8 x 1024 tokens in bf16: 448 blocks, 6.1 GiB at the peak. cudaMalloc and cudaFree
        of a block map and unmap its pages, 0.1 to 0.5 ms together, so 45 to 220 ms per step. A pool that keeps its
        memory needs 1 to 3 us for each call, about 2 ms: 50x. With the default threshold of 0 the synchronisation at
        the end of the step gives all back, and the next step maps it anew: 2x to 5x. An arena moves a pointer, 20 ns:
        30 us with the synchronisation, more than 1000x, but it needs 12 GiB as it reuses nothing within the step. One
        block of 1 MiB: pool 10x; with threshold 0 no better than cudaMalloc or worse. No kernel runs in these steps: in
        a program cudaFree also waits for what is in flight, which is not counted here.)",
    .claims = {},
    .arms = {"cuda_malloc", "malloc_async_default", "malloc_async_pooled", "arena"},
    .sweep = {{"trace", {"training", "trivial"}}},
    .quick = {{{"trace", "training"}}},
    .run = run,
};
