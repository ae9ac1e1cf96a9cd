#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/dependent_chain.hpp"
#include "workloads/device_time.hpp"
#include "workloads/recorded_graph.hpp"

namespace {

using gpulift::Arm;
using gpulift::ChainLaunch;
using gpulift::check;
using gpulift::StreamHandle;

constexpr std::int64_t kKernels = 100;

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const gpulift::DeviceBuffer<std::uint64_t> value(device, 1);
  const auto chain = [&value,
                      cycles = gpulift::cycles_in(device, 1e-6 * static_cast<double>(trial.number("kernel_us")))](
                         ChainLaunch launch, StreamHandle stream) {
    gpulift::dependent_chain(kKernels, cycles, value.data(), launch, stream);
  };

  trial.cost({.items = static_cast<double>(kKernels), .item = "kernel", .roof = {}});
  trial.check({.meaning = "the value that only kernels in their order leave",
               .poison = [&](StreamHandle stream) { check(cudaMemsetAsync(value.data(), 0, value.bytes(), stream)); },
               .error =
                   [&](StreamHandle stream) {
                     std::uint64_t found = 0;
                     check(cudaMemcpyAsync(&found, value.data(), sizeof found, cudaMemcpyDeviceToHost, stream));
                     check(cudaStreamSynchronize(stream));
                     return found == gpulift::after_chain(kKernels, 0) ? 0.0 : 1.0;
                   },
               .tolerance = 0});

  const auto launched = [&](ChainLaunch launch) {
    return [&, launch] { return [&, launch](StreamHandle stream) { chain(launch, stream); }; };
  };
  const auto replayed = [&](ChainLaunch launch) {
    return [&, launch] {
      auto graph = std::make_shared<const gpulift::UniqueGraphExec>(
          gpulift::record_graph([&](StreamHandle stream) { chain(launch, stream); }));
      return [graph](StreamHandle stream) { check(cudaGraphLaunch(graph->get(), stream)); };
    };
  };
  const std::string too_old = gpulift::why_no_programmatic_launch(device.architecture());
  trial.compare(
      {Arm{.name = "serial", .make = launched(ChainLaunch::kSerial)},
       Arm{.name = "programmatic", .make = launched(ChainLaunch::kProgrammatic), .unavailable = too_old},
       Arm{.name = "graph", .make = replayed(ChainLaunch::kSerial)},
       Arm{.name = "programmatic_graph", .make = replayed(ChainLaunch::kProgrammatic), .unavailable = too_old}});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does it save to launch a kernel before the one that it needs has ended?",
    .expectation = R"(
        Between two kernels that depend on each other the device takes about 1.0 us: it ends one, makes its writes
        seen and starts the next. Launched programmatically the next is there already and waits for the writes alone, 0.4
        us. In a graph the gap is 0.7 us, programmatic in a graph 0.4 us. So of kernels of 2 us, 3.0 us each: 1.25
        times, graph 1.1, both 1.25; of 20 us, 1.03, 1.015 and 1.03. The device's clock judges: what launches cost the
        host is launch/cuda_graph's question.)",
    .predict =
        {{.arm = "programmatic", .cases = {{"kernel_us", 2}}, .on = "nvidia", .speedup = {{1.12, 1.38}}},
         {.arm = "graph", .cases = {{"kernel_us", 2}}, .on = "nvidia", .speedup = {{0.99, 1.21}}},
         {.arm = "programmatic_graph", .cases = {{"kernel_us", 2}}, .on = "nvidia", .speedup = {{1.12, 1.38}}},
         {.arm = "programmatic", .cases = {{"kernel_us", 20}}, .on = "nvidia", .speedup = {{0.927, 1.13}}},
         {.arm = "graph", .cases = {{"kernel_us", 20}}, .on = "nvidia", .speedup = {{0.913, 1.12}}},
         {.arm = "programmatic_graph", .cases = {{"kernel_us", 20}}, .on = "nvidia", .speedup = {{0.927, 1.13}}}},
    .launch_bound = true,
    .arms = {"serial", "programmatic", "graph", "programmatic_graph"},
    .l2 = gpulift::Cache::kNone,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"kernel_us", {2, 20}}},
    .quick = {{{"kernel_us", 2}}},
    .run = run,
};
