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
  gpulift::check(cudaMemset(bias.data(), 0, bias.bytes()));  // a linear layer has added it in its product
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

gpulift::Point chain_of(const char* chain) { return {{"chain", chain}}; }
gpulift::Point half_gib_of(const char* chain) { return {{"chain", chain}, {"bytes", 512 * kMiB}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "What is it worth to fuse a GELU that is written out into one kernel, and does a CUDA graph do as well?",
    .expectation = R"(
        Of a linear layer's results: it adds its bias in the product, so that no kernel here does. Bytes decide: a step
        must read and write one array, so 512 MiB move 1.07 GB, on an H200 whose copies reach 4.3 TB/s 0.25 ms. Written
        out, as models of transformers for GPT-2 have it, GELU is 8 operations, which read 10 arrays and write 8: 9.7
        GB, at 0.95 of the copy 2.37 ms. Fused, by ours at 0.97 of the copy, 0.26 ms: 9 times. The compiler's kernel
        moves the same, but takes tanh by a function of some 30 instructions, in part behind the bytes: 8. A graph, the
        control, moves what its operations do: 1.0. It and the compiler's kernel may begin up to 3 us later than what is
        launched by itself, as ours is: 5 % of 65. With nnf.gelu, as a model may have it, torch has one kernel itself,
        which fusion/gemm_epilogue had at 0.34 ms for as many at most: nothing is there to fuse, and what ours gains,
        1.0 to 1.35, is a better kernel. A quarter of the bytes, a quarter of the time: these are cold too. What
        launches cost where arrays are small is what launch/cuda_graph asks.)",
    .predict =
        {{.arm = "torch", .cases = half_gib_of("gelu_written_out"), .on = "h200", .step_time_s = {{2.15e-3, 2.65e-3}}},
         {.arm = "torch", .cases = half_gib_of("gelu"), .on = "h200", .step_time_s = {{250e-6, 350e-6}}},
         {.arm = "graph", .on = "nvidia-h", .speedup = {{0.95, 1.05}}},
         {.arm = "compiled", .cases = chain_of("gelu_written_out"), .on = "nvidia-h", .speedup = {{6.5, 9.5}}},
         {.arm = "compiled", .cases = chain_of("gelu"), .on = "nvidia-h", .speedup = {{0.9, 1.25}}},
         {.arm = "fused", .cases = chain_of("gelu_written_out"), .on = "nvidia-h", .speedup = {{7.5, 10}}},
         {.arm = "fused", .cases = chain_of("gelu"), .on = "nvidia-h", .speedup = {{0.98, 1.35}}}},
    .found = R"(
        As predicted, on an H200 in three launches of the chain written out. Until 2026-11-29 torch added a bias in a
        kernel of its own, on an H200 0.6 or more of the 0.94 ms that it took with GELU, 0.42 of the copy, as one row
        for all is taken number by number (inferred, not profiled): 3.4x of fused was of that, which no linear layer
        does.)",
    .arms = {"torch", "graph", "compiled", "fused"},
    .controls = {"graph"},
    .python = {"torch", "graph", "compiled"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"chain", {"gelu_written_out", "gelu"}}, {"bytes", {128 * kMiB, 512 * kMiB}}},
    .quick = {},  // three interpreters that load torch for each case and launch
    .run = run,
};
