#include <string>

#include "core/harness/technique.hpp"
#include "workloads/torch/training_comparison.hpp"
#include "workloads/torch/twin.hpp"

namespace {

void run(gpulift::Trial& trial) {
  gpulift::TrainingComparison comparison = gpulift::compare_twins(trial);
  const gpulift::Twin twin = gpulift::twin_named(trial.word("model"));
  const auto python = [&](const std::string& name) { return gpulift::python_twin(trial, comparison, name); };
  // Weights of Python and of C++ differ: each side is checked against exact steps of its own.
  comparison.compare({python("eager"), python("default"), python("reduce_overhead"), python("max_autotune"),
                      comparison.arm("cpp_eager", twin.options())},
                     twin.tolerance);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does torch.compile save of a whole training step, and after how many steps has it paid?",
    .expectation = R"(
        GPT-2, 8 x 1024 tokens, BF16: 7.0 TFLOP / 600 TFLOP/s = 12 ms of products; eager adds some 24 ms of element-wise
        kernels (each reads and writes 0.1 GB or, for the logits, 0.8 to 1.6 GB, at 4.1 TB/s), of which fusing saves two
        thirds: 36 to 18 ms, a factor of 2.0; max_autotune 2 % more at most. ResNet-50, 64 images, channels_last, BF16:
        1.57 TFLOP / 350 TFLOP/s = 4.5 ms, and 10 ms of norms and sums that eager reads twice: a factor of 1.4 with
        graphs, 1.0 without, where the host, 15 to 20 ms a step, bounds both; with 128 images it is hidden behind 29 ms:
        1.25 without graphs, 1.5 with. The small GPT, 1 x 128 tokens: about 400 launches of 5 to 10 us from Python, 4
        ms, against 0.05 TFLOP and 67 M parameters x 40 bytes, 0.65 ms: default 1.3, with graphs (reduce_overhead,
        max_autotune) 3. cpp_eager: where the GPU bounds, 1.0 within 3 %; in the small GPT dispatch from C++ costs 3 us
        instead of 6, so 1.5. Cold: 20 to 40 s, max_autotune, which times kernels for every shape, 3 to 8 minutes; it
        has paid after 30 s / 18 ms = 1700 steps of GPT-2, 30 s / 3 ms = 10000 of the small one. No graph breaks, no
        recompiles. On a CPU, FP32: ResNet-18 1.1, the toy GPT, all overhead, 1.5; cpp_eager 1.1 there.)",
    .predict =
        {{.arm = "eager", .cases = {{"model", "gpt2"}}, .on = "h200", .step_time_s = {{32.4e-3, 39.6e-3}}},
         {.arm = "default", .cases = {{"model", "gpt2"}}, .on = "h200", .speedup = {{1.8, 2.2}}},
         {.arm = "max_autotune", .cases = {{"model", "gpt2"}}, .on = "h200", .speedup = {{1.8, 2.24}}},
         {.arm = "default", .cases = {{"model", "resnet50"}}, .on = "h200", .speedup = {{0.95, 1.05}}},
         {.arm = "reduce_overhead", .cases = {{"model", "resnet50"}}, .on = "h200", .speedup = {{1.26, 1.54}}},
         {.arm = "max_autotune", .cases = {{"model", "resnet50"}}, .on = "h200", .speedup = {{1.26, 1.54}}},
         {.arm = "default", .cases = {{"model", "resnet50_128"}}, .on = "h200", .speedup = {{1.12, 1.38}}},
         {.arm = "reduce_overhead", .cases = {{"model", "resnet50_128"}}, .on = "h200", .speedup = {{1.35, 1.65}}},
         {.arm = "max_autotune", .cases = {{"model", "resnet50_128"}}, .on = "h200", .speedup = {{1.35, 1.65}}},
         {.arm = "default", .cases = {{"model", "gpt_small"}}, .on = "h200", .speedup = {{1.17, 1.43}}},
         {.arm = "reduce_overhead", .cases = {{"model", "gpt_small"}}, .on = "h200", .speedup = {{2.7, 3.3}}},
         {.arm = "max_autotune", .cases = {{"model", "gpt_small"}}, .on = "h200", .speedup = {{2.7, 3.3}}},
         {.arm = "cpp_eager", .cases = {{"model", "gpt2"}}, .on = "h200", .speedup = {{0.97, 1.03}}},
         {.arm = "cpp_eager", .cases = {{"model", "resnet50_128"}}, .on = "h200", .speedup = {{0.97, 1.03}}},
         {.arm = "cpp_eager", .cases = {{"model", "gpt_small"}}, .on = "h200", .speedup = {{1.35, 1.65}}},
         {.arm = "default", .cases = {{"model", "resnet18"}}, .on = "cpu", .speedup = {{0.99, 1.21}}},
         {.arm = "default", .cases = {{"model", "gpt_toy"}}, .on = "cpu", .speedup = {{1.35, 1.65}}},
         {.arm = "cpp_eager", .cases = {{"model", "gpt_toy"}}, .on = "cpu", .speedup = {{0.99, 1.21}}}},
    .found = R"(
        Compiled, ResNet-18 has 0.59 of eager's speed on one core (119 ms for 70) and 0.74 on another processor, in each
        mode alike, without graph breaks or recompiles; eager from C++ is as fast as from Python. Why is not known.)",
    .claims = {"torch-compile-faster", "torch-compile-slow-at-first"},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"eager", "default", "reduce_overhead", "max_autotune", "cpp_eager"},
    .controls = {"cpp_eager"},
    .python = {"eager", "default", "reduce_overhead", "max_autotune"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"resnet50", "resnet50_128", "gpt2", "gpt_small", "resnet18", "gpt_toy"}}},
    .quick = {},  // a cold compile takes 20 s and more
    .run = run,
};
