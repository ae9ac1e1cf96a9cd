#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/handles.hpp"
#include "core/harness/technique.hpp"
#include "kernels/bias_gelu.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"
#include "workloads/memory_roof.hpp"
#include "workloads/recorded_graph.hpp"

namespace {

using gpulift::Arm;
using gpulift::StreamHandle;
using Numbers = gpulift::DeviceBuffer<__nv_bfloat16>;

constexpr int kColumns = 4096;          // of the hidden layer of GPT-2 medium's MLP
constexpr double kHalfUlp = 1.0 / 256;  // of BF16: what one rounding changes at the most

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const auto bytes = static_cast<std::size_t>(trial.number("bytes"));
  const std::size_t count = bytes / sizeof(__nv_bfloat16);
  const bool by_formula = trial.number("operations") == 8;
  const Numbers input(device, count);
  const Numbers output(device, count);
  const Numbers bias(device, kColumns);
  const gpulift::DeviceBuffer<float> reference(device, count);
  const gpulift::Verifier verifier(device);
  const gpulift::BiasGelu data{
      .count = count, .columns = kColumns, .input = input.data(), .bias = bias.data(), .output = output.data()};
  gpulift::fill_normal(input.data(), count, trial.seed(), nullptr);
  gpulift::fill_normal(bias.data(), bias.size(), trial.seed() + 1, nullptr);
  bias_gelu_reference(data, reference.data(), nullptr);
  gpulift::check(cudaDeviceSynchronize());

  const double moved = 2.0 * static_cast<double>(bytes);
  trial.cost({.bytes = moved, .roof = gpulift::memory_roof(device.l2_bytes(), moved)});
  trial.check({.meaning = "error against FP64, relative or of numbers below 1 absolute",
               .poison = [&](StreamHandle s) { gpulift::check(cudaMemsetAsync(output.data(), 0xFF, bytes, s)); },
               .error =
                   [&](StreamHandle stream) {
                     return verifier.max_relative_error(output.data(), reference.data(), count, 1, stream);
                   },
               .tolerance = kHalfUlp});

  const auto chain = [&]() -> gpulift::Step {
    const auto biased = std::make_shared<Numbers>(device, count);
    if (!by_formula) return [=](StreamHandle stream) { bias_gelu_by_two(data, biased->data(), stream); };
    const auto held = std::make_shared<Numbers>(device, count);
    return [=](StreamHandle stream) { bias_gelu_by_eight(data, biased->data(), held->data(), stream); };
  };
  const auto graph = [&]() -> gpulift::Step {
    const gpulift::Step step = chain();
    const auto recorded = std::make_shared<const gpulift::UniqueGraphExec>(gpulift::record_graph(step));
    return [step, recorded](StreamHandle stream) { gpulift::check(cudaGraphLaunch(recorded->get(), stream)); };
  };
  const auto fused = [&]() -> gpulift::Step { return [data](StreamHandle stream) { bias_gelu(data, stream); }; };
  constexpr auto kClock = gpulift::Clock::kUnheld;
  const double of_chain = (by_formula ? 8 : 3) * kHalfUlp;  // each operation rounds, GELU scales by up to 1.13
  trial.compare({Arm{.name = "op_by_op", .make = chain, .clock = kClock, .tolerance = of_chain},
                 Arm{.name = "graph_of_ops", .make = graph, .clock = kClock, .tolerance = of_chain},
                 Arm{.name = "fused", .make = fused, .clock = kClock}});
}

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

gpulift::Point case_of(std::int64_t operations, std::int64_t bytes) {
  return {{"operations", operations}, {"bytes", bytes}};
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is it worth to fuse a bias and GELU into one kernel, and does a CUDA graph do as well?",
    .expectation = R"(
        Bytes decide at 128 MiB and more, launches at 64 KiB. A step must read and write one array; all arms count that.
        Two operations (bias, GELU) move 4 arrays, the eight of GELU as its formula is written 18: 2.0 and 9.0 times what
        fused moves. On an H100 whose copies reach 3.0 TB/s, 512 MiB take 0.72, 3.2 and fused 0.36 ms, 128 MiB a quarter of
        that; on an H200, at 4.2 TB/s, 0.51, 2.3 and 0.26 ms. A graph moves the same bytes: 1.0 times. At 64 KiB a kernel
        takes the stream some 3 us, in a graph 2.5: the graph gains 1.1 to 1.2 times with eight operations and nothing
        with two, where the replay's own cost weighs; fused gains 2 and 8 times.)",
    .predict = {{.arm = "op_by_op", .cases = case_of(2, 512 * kMiB), .on = "h100", .step_time_s = {{648e-6, 792e-6}}},
                {.arm = "op_by_op", .cases = case_of(8, 512 * kMiB), .on = "h100", .step_time_s = {{2.88e-3, 3.52e-3}}},
                {.arm = "op_by_op", .cases = case_of(2, 512 * kMiB), .on = "h200", .step_time_s = {{460e-6, 562e-6}}},
                {.arm = "op_by_op", .cases = case_of(8, 512 * kMiB), .on = "h200", .step_time_s = {{2.07e-3, 2.53e-3}}},
                {.arm = "graph_of_ops", .cases = {{"bytes", 512 * kMiB}}, .on = "nvidia-h", .speedup = {{0.95, 1.05}}},
                {.arm = "graph_of_ops", .cases = {{"bytes", 128 * kMiB}}, .on = "nvidia-h", .speedup = {{0.95, 1.05}}},
                {.arm = "graph_of_ops", .cases = case_of(2, 64 * kKiB), .on = "nvidia-h", .speedup = {{0.95, 1.05}}},
                {.arm = "graph_of_ops", .cases = case_of(8, 64 * kKiB), .on = "nvidia-h", .speedup = {{1.1, 1.2}}},
                {.arm = "fused", .cases = case_of(2, 512 * kMiB), .on = "nvidia-h", .speedup = {{1.8, 2.2}}},
                {.arm = "fused", .cases = case_of(2, 128 * kMiB), .on = "nvidia-h", .speedup = {{1.8, 2.2}}},
                {.arm = "fused", .cases = case_of(8, 512 * kMiB), .on = "nvidia-h", .speedup = {{8.1, 9.9}}},
                {.arm = "fused", .cases = case_of(8, 128 * kMiB), .on = "nvidia-h", .speedup = {{8.1, 9.9}}},
                {.arm = "fused", .cases = case_of(2, 64 * kKiB), .on = "nvidia-h", .speedup = {{1.8, 2.2}}},
                {.arm = "fused", .cases = case_of(8, 64 * kKiB), .on = "nvidia-h", .speedup = {{7.2, 8.8}}}},
    .found = R"(
        At 64 KiB the host bounds single launches, 4.4 to 4.8 us each, and not the stream, 3 us: two operations take 8.8
        and 9.6 us, their graph 4.0 us of the device: 2.3, and with eight operations 3.0.)",
    .claims = {},
    .arms = {"op_by_op", "graph_of_ops", "fused"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"operations", {2, 8}}, {"bytes", {64 * kKiB, 128 * kMiB, 512 * kMiB}}},
    .quick = {{{"operations", 2}, {"bytes", 128 * kMiB}}},
    .run = run,
};
