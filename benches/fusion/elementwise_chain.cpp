#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/bias_gelu.hpp"
#include "kernels/fill.hpp"
#include "kernels/verify.hpp"
#include "workloads/memory_roof.hpp"

namespace {

using gpulift::StreamHandle;
using Numbers = gpulift::DeviceBuffer<__nv_bfloat16>;

constexpr int kColumns = 4096;  // of the hidden layer of GPT-2 medium's MLP

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const auto bytes = static_cast<std::size_t>(trial.number("bytes"));
  const std::size_t count = bytes / sizeof(__nv_bfloat16);
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
               .tolerance = 1.0 / 128});  // rounding once to BF16 is at most 1/256 of a number

  const auto fused = [&] { return [data](StreamHandle stream) { bias_gelu(data, stream); }; };
  trial.compare({gpulift::python_arm("torch"),
                 gpulift::python_arm("graph"),
                 gpulift::python_arm("compiled"),
                 {.name = "fused", .make = fused, .clock = gpulift::Clock::kUnheld}});
}

constexpr std::int64_t kMiB = std::int64_t{1024} * 1024;

gpulift::Point form_of(const char* form) { return {{"form", form}}; }
gpulift::Point half_gib_of(const char* form) { return {{"form", form}, {"bytes", 512 * kMiB}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What is it worth to fuse a bias and GELU into one kernel, and does a CUDA graph do as well?",
    .expectation = R"(
        Bytes decide: a step must read and write one array, so 512 MiB move 1.07 GB, on an H200 whose copies reach 4.3
        TB/s 0.25 ms. torch adds the bias and has a kernel for GELU, 4 arrays at 0.95 of the copy: 0.53 ms. Written out,
        as models of transformers for GPT-2 have it, GELU is 8 operations, with the bias 20 arrays: 2.65 ms. Fused, by
        ours at 0.97 of the copy, 2.05 and 10 times. The compiler's kernel moves the same, but takes tanh by a function
        of some 30 instructions, for 268 M numbers 0.26 ms, in part behind the bytes: 1.75, and 8.8. A graph, the
        control, moves what its operations do: 1.0. A quarter of the bytes, a quarter of the time: these are cold too.
        What launches cost where arrays are small is what launch/cuda_graph asks.)",
    .predict = {{.arm = "torch", .cases = half_gib_of("gelu"), .on = "h200", .step_time_s = {{480e-6, 590e-6}}},
                {.arm = "torch", .cases = half_gib_of("written_out"), .on = "h200", .step_time_s = {{2.4e-3, 3.0e-3}}},
                {.arm = "graph", .on = "nvidia-h", .speedup = {{0.95, 1.05}}},
                {.arm = "compiled", .cases = form_of("gelu"), .on = "nvidia-h", .speedup = {{1.5, 2.1}}},
                {.arm = "compiled", .cases = form_of("written_out"), .on = "nvidia-h", .speedup = {{7, 10.5}}},
                {.arm = "fused", .cases = form_of("gelu"), .on = "nvidia-h", .speedup = {{1.85, 2.25}}},
                {.arm = "fused", .cases = form_of("written_out"), .on = "nvidia-h", .speedup = {{9, 11}}}},
    .found = R"(
        An H200, one launch: with GELU torch takes 0.94 ms, not 0.53, so that fused has 3.4 and compiled 2.7. In
        fusion/gemm_epilogue the same kernel takes at most 64 us for 50 M numbers, which is 0.34 ms at most for these.
        Then the addition takes 0.6 or more, 0.42 of the copy: the bias is one row for all, which torch's kernel takes
        number by number (inferred, not profiled). A linear layer adds its bias in the product: what GELU is worth
        behind one, and inside of it, is what fusion/gemm_epilogue says.)",
    .arms = {"torch", "graph", "compiled", "fused"},
    .controls = {"graph"},
    .python = {"torch", "graph", "compiled"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"form", {"gelu", "written_out"}}, {"bytes", {128 * kMiB, 512 * kMiB}}},
    .quick = {},  // three interpreters that load torch for each case and launch
    .run = run,
};
