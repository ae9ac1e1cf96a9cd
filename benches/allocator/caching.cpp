#include <torch/cuda.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/harness/technique.hpp"
#include "workloads/torch/allocator_case.hpp"
#include "workloads/torch/allocator_facts.hpp"

namespace {

using gpulift::TrainingRun;
using Environment = std::map<std::string, std::string>;

constexpr int kRounds = 2;

/// One arm, in a process of its own: torch reads these variables once.
struct Allocator {
  std::string name;  // as allocator_in_use() calls it
  Environment environment;
};

// Torch takes the one name or the other: with both, the user's own settings do not get through.
Environment configured(const std::string& options) {
  return {{"PYTORCH_CUDA_ALLOC_CONF", options}, {"PYTORCH_ALLOC_CONF", options}};
}

std::vector<Allocator> allocators() {
  return {{"caching", configured("expandable_segments:False")},  // as without any setting
          {"expandable_segments", configured("expandable_segments:True")},
          {"malloc_async", configured("backend:cudaMallocAsync")},
          {"roundup", configured("roundup_power2_divisions:4")},
          {"uncached", {{"PYTORCH_NO_CUDA_MEMORY_CACHING", "1"}}}};
}

/// Times of single steps, calls to the driver, and memory as the driver sees it.
gpulift::Metrics metrics_of(TrainingRun& run, torch::Device device, std::size_t free_before) {
  gpulift::Metrics metrics = gpulift::allocator_metrics(run, device);
  const int steps = kRounds * static_cast<int>(run.batches());
  const auto take_steps = [&] {
    for (int i = 0; i < steps; ++i) run.step();
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
  };
  metrics.merge(gpulift::count_allocations(device, steps, take_steps));
  const std::size_t lowest = gpulift::lowest_free_bytes_during(device, take_steps);
  if (device.is_cuda())
    metrics["device_bytes_taken"] = static_cast<double>(free_before - std::min(free_before, lowest));
  return metrics;
}

void run(gpulift::Trial& trial) {
  gpulift::TrainingComparison comparison = gpulift::compare_allocators(trial, trial.word("model"));
  const torch::Device device = comparison.session().device();
  const std::size_t free_before = gpulift::free_device_bytes(device);
  std::vector<gpulift::Arm> arms;
  for (const Allocator& allocator : allocators()) {
    gpulift::TrainingOptions options = gpulift::allocator_options();
    options.prepare = [name = allocator.name](gpulift::Model&) {
      const std::string found = gpulift::allocator_in_use();
      if (found != name) throw std::runtime_error("torch's allocator is " + found + " here, not " + name);
    };
    gpulift::TrainingComparison::ArmOptions arm_options;
    arm_options.metrics = [device, free_before](TrainingRun& run) { return metrics_of(run, device, free_before); };
    arms.push_back(comparison.arm(allocator.name, options, arm_options));
    arms.back().worker = gpulift::Worker{.device = true, .environment = allocator.environment};
  }
  comparison.compare_exactly(std::move(arms), gpulift::allocator_options(),
                             gpulift::allocator_tolerance(comparison.session()));
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "What do the options of torch's caching allocator change in a training step, and what would one be without?",
    .expectation = R"(
        H100 or H200, BF16, fused attention. Caching, as torch comes, takes what it has at hand and asks the driver for
        nothing once the shapes were seen. malloc_async keeps a pool too, but some 7 us a pair for the 1100 tensors of a
        step make 8 ms of host: hidden behind gpt2's device (8 x 1024, 36 ms), up to 10 % slower than caching on the
        encoder (16 rows of 384 padded tokens, some 20 ms). Expandable segments and rounding: within 1 % of caching.
        Memory reserved beyond allocated: gpt2, whose shapes never change, under 10 % in all arms; the encoder with
        caching 10 to 40 %, with expandable segments under 10 %, rounded 10 to 25 %. No retries: the card is never near
        full, so what fragmentation does at the limit (the published -28 and -34 % of reserved memory are of such cases)
        shows in the reserved bytes alone. p99 over p50: 1.3 on the encoder from the lengths in every arm, 1.05 on gpt2.
        Uncached is a control: a pair of cudaMalloc and cudaFree costs 50 to 130 us, so 55 to 140 ms a step, and since
        cudaFree waits for the device the host never runs ahead: 0.2 to 0.4 of caching's speed.)",
    .predict = {{.arm = "caching", .cases = {{"model", "gpt2"}}, .on = "nvidia", .step_time_s = {{32.4e-3, 39.6e-3}}},
                {.arm = "expandable_segments", .on = "nvidia", .speedup = {{0.99, 1.01}}},
                {.arm = "malloc_async", .cases = {{"model", "encoder"}}, .on = "nvidia", .speedup = {{0.9, 1}}},
                {.arm = "malloc_async", .cases = {{"model", "gpt2"}}, .on = "nvidia", .speedup = {{0.95, 1.05}}},
                {.arm = "roundup", .on = "nvidia", .speedup = {{0.99, 1.01}}},
                {.arm = "uncached", .on = "nvidia", .speedup = {{0.2, 0.4}}}},
    .whole_steps = true,
    .arms = {"caching", "expandable_segments", "malloc_async", "roundup", "uncached"},
    .controls = {"uncached"},
    .l2 = gpulift::Cache::kCold,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"encoder", "gpt2"}}},
    .quick = {},  // five processes that load torch take longer than all else together
    .run = run,
};
