#include "kernels/softmax_cross_entropy.hpp"

#include <cuda_runtime_api.h>

#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/pattern.hpp"
#include "kernels/verify.hpp"
#include "workloads/memory_roof.hpp"

namespace {

using Matrix = gpulift::DeviceBuffer<__nv_bfloat16>;
using Floats = gpulift::DeviceBuffer<float>;
using gpulift::StreamHandle;

struct Tokens {
  Tokens(gpulift::Device& device, std::size_t rows, int classes, std::uint64_t seed)
      : count(rows * static_cast<std::size_t>(classes)),
        logits(device, count),
        gradient(device, count),
        losses(device, rows),
        targets(device, rows),
        gradient_reference(device, count),
        losses_reference(device, rows),
        verifier(device),
        data{.rows = rows,
             .classes = classes,
             .scale = 1.0F / static_cast<float>(rows),
             .logits = logits.data(),
             .targets = targets.data(),
             .losses = losses.data(),
             .gradient = gradient.data()} {
    gpulift::fill_normal(logits.data(), count, seed, nullptr);
    std::vector<std::int32_t> chosen;
    for (std::size_t i = 0; i < rows; ++i) {
      chosen.push_back(static_cast<std::int32_t>(gpulift::random_bits(seed, i) % static_cast<std::uint64_t>(classes)));
    }
    gpulift::check(cudaMemcpy(targets.data(), chosen.data(), targets.bytes(), cudaMemcpyHostToDevice));
    cross_entropy_reference(data, losses_reference.data(), gradient_reference.data(), nullptr);
    gpulift::check(cudaDeviceSynchronize());
  }
  void poison(StreamHandle stream) const {
    gpulift::check(cudaMemsetAsync(gradient.data(), 0xFF, gradient.bytes(), stream));
    gpulift::check(cudaMemsetAsync(losses.data(), 0xFF, losses.bytes(), stream));
  }
  /// The errors of gradient and losses, added, so that a NaN of either stays one.
  double error(StreamHandle stream) const {
    const double typical = 1.0 / static_cast<double>(count);  // all classes equally likely
    return verifier.max_relative_error(gradient.data(), gradient_reference.data(), count, typical, stream) +
           verifier.max_relative_error(losses.data(), losses_reference.data(), losses.size(), 1, stream);
  }

  std::size_t count;
  Matrix logits, gradient;
  Floats losses;
  gpulift::DeviceBuffer<std::int32_t> targets;
  Floats gradient_reference, losses_reference;
  gpulift::Verifier verifier;
  gpulift::CrossEntropy data;
};

void run(gpulift::Trial& trial) {
  gpulift::Device& device = trial.device();
  const auto classes = static_cast<int>(trial.number("classes"));
  const Tokens tokens(device, static_cast<std::size_t>(trial.number("tokens")), classes, trial.seed());
  const double bytes = 2.0 * static_cast<double>(tokens.logits.bytes());
  trial.cost({.bytes = bytes, .roof = gpulift::memory_roof(device.l2_bytes(), bytes)});
  trial.check({.meaning = "relative error against FP64 of gradients and the loss",
               .poison = [&](StreamHandle stream) { tokens.poison(stream); },
               .error = [&](StreamHandle stream) { return tokens.error(stream); },
               .tolerance = 1.0 / 128});  // rounding once to BF16 is at most 1/256 of a number
  const std::size_t held_bytes = gpulift::cross_entropy_held_bytes(classes);
  trial.note("row_held", held_bytes > 0 ? "yes" : "no");

  const auto fused = [&] {
    return [&tokens, held_bytes](StreamHandle stream) { cross_entropy(tokens.data, held_bytes, stream); };
  };
  trial.compare({gpulift::python_arm("torch"),
                 gpulift::python_arm("torch_bf16"),
                 {.name = "fused", .make = fused, .clock = gpulift::Clock::kUnheld},
                 gpulift::python_arm("compiled"),
                 gpulift::python_arm("liger")});
}

gpulift::Point classes_of(std::int64_t classes) { return {{"classes", classes}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "What is it worth to fuse softmax, cross entropy and their gradient over a large vocabulary, and by whom?",
    .expectation = R"(
        Logits come in BF16, and their gradient goes in BF16; a step is a forward and a backward pass. They are not
        measured apart, since ours and Liger's make the gradient in the forward pass, and Liger's backward pass only
        multiplies it by that of the loss where this is not 1. Ours gives a loss for each token and gradients of their
        mean, without that mean itself and without ignore_index, by which the others leave tokens out. Kernels are
        compared: Python's arms replay them as a graph, but for Liger's, which is called anew in each step, as it asks
        the device how many targets count, three times a step. Bytes decide. At least 4 a logit must move, of 8192 x
        50257 1.65 GB, on an H200 whose copies reach 4.3 TB/s 0.38 ms. A model in torch, under autocast or as
        transformers has it, casts logits to FP32 (6), takes their log softmax by a kernel that reads a row up to three
        times (8 to 16), and backward writes zeros for the loss's gradient (4), reads that and the log softmax up to
        twice (12 to 20), and casts (6): 36 to 52 bytes, 14.8 to 21 GB, at 0.9 of the copy 3.8 to 5.5 ms. In BF16 all
        through the same passes are 12 to 20 bytes, 2.7 times as fast, and gradients 3 % off, as a logarithm of 11 is
        rounded. Our kernel, fused, holds a row of 101 kB in shared memory and reads it once: 0.43 ms, 10. The compiler
        reads forward, and reads and writes backward, 6 bytes at 0.85: 0.68 ms, 6.5. Liger reads a row twice, the second
        time from the cache, by blocks whose threads hold 32 numbers, at 0.65 of the copy 0.59 ms, and the host's
        questions leave the device idle for 0.2: 5.5. Of Llama 3's 128256 classes a row of 257 kB fits into no shared
        memory: ours reads it twice as well, 6 bytes, 1.6 ms; torch's reads find nothing in the cache: 52 bytes, 14 ms;
        8.9, in BF16 2.6, compiled 7, Liger 6.7.)",
    .predict = {{.arm = "torch", .cases = classes_of(50257), .on = "h200", .step_time_s = {{3.7e-3, 5.6e-3}}},
                {.arm = "torch", .cases = classes_of(128256), .on = "h200", .step_time_s = {{11.5e-3, 16e-3}}},
                {.arm = "torch_bf16", .on = "nvidia-h", .speedup = {{2.2, 3.5}}},
                {.arm = "fused", .cases = classes_of(50257), .on = "nvidia-h", .speedup = {{8.5, 13}}},
                {.arm = "fused", .cases = classes_of(128256), .on = "nvidia-h", .speedup = {{7.5, 11}}},
                {.arm = "compiled", .cases = classes_of(50257), .on = "nvidia-h", .speedup = {{5, 8.5}}},
                {.arm = "compiled", .cases = classes_of(128256), .on = "nvidia-h", .speedup = {{5.2, 9.5}}},
                {.arm = "liger", .cases = classes_of(50257), .on = "nvidia-h", .speedup = {{4, 8}}},
                {.arm = "liger", .cases = classes_of(128256), .on = "nvidia-h", .speedup = {{5, 10}}}},
    .found = R"(
        On an H200, two runs of one launch. The baseline is what models run, a cast to FP32 first: beside what people
        would turn to instead, ours is worth less than 12. Of 50257 classes it is 3.6 times as fast as torch in BF16,
        3.1 times as fast as the compiler's kernels, 4.3 and 4.8 times as Liger's, which the host paces; of 128256
        classes 3.1, 1.7 and 1.6 times. Triton's kernels, the compiler's and Liger's, do better of 128256 classes, by
        the bytes that must move 1.62 and 1.73 TB/s for 1.20 and 0.77 to 0.87: it loads packs of 16 bytes where it knows
        a row to begin at a multiple of them, which rows of 50257 numbers do not, so there numbers are loaded one by
        one. That is its rule, not a profile; a vocabulary that is padded, as to 50304, was not measured. Liger's host
        waits for the device five times a step, not three (read): how many targets count, two assertions, a number that
        is copied there, a comparison behind the kernel. The host is in its calls for 1.82 of 1.89 ms in the first run,
        and how long the device is idle meanwhile is not known. Ours is launched by itself, up to 3 us sooner than a
        graph begins.)",
    .claims = {},
    .arms = {"torch", "torch_bf16", "fused", "compiled", "liger"},
    .python = {"torch", "torch_bf16", "compiled", "liger"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    // Of GPT-2, odd, so that rows begin anywhere, and of Llama 3
    .sweep = {{"tokens", {8192}}, {"classes", {50257, 128256}}},
    .quick = {},  // four interpreters that load torch for each case and launch
    .run = run,
};
