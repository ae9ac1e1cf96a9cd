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
  trial.compare({arm("malloc_async_pooled", make_pool_keeping_all), arm("malloc_async_default", make_pool_default),
                 arm("arena", make_arena), arm("cuda_malloc", make_malloc)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "What does it cost to take device memory in every step and give it back, and what is cheaper than a pool?",
    .expectation = R"(
        H100 or H200, one GPT-2 124M step of 8 x 1024 tokens in bf16: 448 blocks, 6.1 GiB at the peak. A pool that keeps
        its memory, as frameworks have one, needs 3 to 6 us for each call: 3 to 6 ms of a step's 36, and of the host,
        which mostly runs ahead. With the default threshold of 0 the synchronisation at the end of the step gives all
        back, and the next step maps it anew: 13 to 25 ms more, 0.2 of the pool's speed. An arena moves a pointer, 5 to
        20 ns: 2 to 8 us with the synchronisation, some thousand times less, but these are the same 3 to 6 ms a step,
        and it needs 12 GiB as it reuses nothing within the step. cuda_malloc is a control, since no framework calls it
        for each tensor: 50 to 130 us a pair to map and unmap pages, 20 to 55 ms more, 0.1 of the pool's speed. One block
        of 1 MiB: the arena saves 1 to 2 us; threshold 0 takes 70 to 130; cuda_malloc 1 to 4 where the driver has such a
        block at hand, 60 to 90 where it maps one. No kernel runs in these steps: in a program cudaFree also waits for
        what is in flight, which is not counted here.)",
    .predict =
        {{.arm = "malloc_async_pooled",
          .cases = {{"trace", "training"}},
          .on = "nvidia",
          .step_time_s = {{3e-3, 6e-3}}},
         {.arm = "malloc_async_default", .cases = {{"trace", "training"}}, .on = "nvidia", .speedup = {{0.18, 0.22}}},
         {.arm = "malloc_async_default",
          .cases = {{"trace", "trivial"}},
          .on = "nvidia",
          .step_time_s = {{70e-6, 130e-6}}},
         {.arm = "arena", .cases = {{"trace", "training"}}, .on = "nvidia", .step_time_s = {{2e-6, 8e-6}}},
         {.arm = "cuda_malloc", .cases = {{"trace", "training"}}, .on = "nvidia", .speedup = {{0.09, 0.11}}}},
    .arms = {"malloc_async_pooled", "malloc_async_default", "arena", "cuda_malloc"},
    .controls = {"cuda_malloc"},
    .l2 = gpulift::Cache::kNone,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"trace", {"training", "trivial"}}},
    .quick = {{{"trace", "training"}}},
    .run = run,
};
