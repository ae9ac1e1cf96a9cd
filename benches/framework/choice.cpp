#include <string>

#include "core/harness/technique.hpp"
#include "workloads/torch/training_comparison.hpp"
#include "workloads/torch/twin.hpp"

namespace {

void run(gpulift::Trial& trial) {
  gpulift::TrainingComparison comparison = gpulift::compare_twins(trial);
  const gpulift::Twin twin = gpulift::twin_named(trial.word("model"));
  const auto python = [&](const std::string& name) { return gpulift::python_twin(trial, comparison, name); };
  // Weights differ between frameworks: each is checked against exact steps of its own.
  comparison.compare({python("pytorch_compiled"), python("jax_jit"), python("pytorch_eager"),
                      comparison.arm("libtorch_eager", twin.options())},
                     twin.tolerance);
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "How much does the framework matter for a training step of the same model, batch and type?",
    .expectation = R"(
        Eager steps are controls, and these are speeds over LibTorch's. LibTorch and PyTorch call the same kernels: 1.0
        within 3 % where the GPU bounds, 0.6 for PyTorch in the small GPT, whose 400 launches cost 10 us each from
        Python and 6 us from C++. Compiled, with graphs: ResNet-50, 64 images, 1.4, since norms and sums are read half
        as often; with 128 images the same. The small GPT 2: 52 GFLOP are 0.1 ms and 67 M parameters x 40 bytes / 4.1
        TB/s are 0.65 ms, against 2.5 to 3 ms of launches from C++. The MLP 1.05: 0.2 TFLOP / 600 TFLOP/s = 0.33 ms of
        products and 134 M x 40 bytes / 4.1 TB/s = 1.3 ms of optimizer, which is one kernel already. The LSTM 1.0:
        torch.compile does not look into it. XLA compiles the optimizer too: 1.0 on the MLP, 2.5 on the small GPT,
        which is one call then. On ResNet-50 1.3: norms and sums fused as by torch.compile, but 0.5 to 1 ms more in
        sums over channels and in the pool's backward, which scatters. On the LSTM 1.0: a scan is 2 layers x 128 tokens
        x 10 kernels of 3 us, 7.7 ms; 0.46 TFLOP of products, 82 M logits and 15 M parameters are 1.3 ms; against 9.3
        ms in C++. The toy GPT on a CPU: PyTorch 0.8, compiled 1.2, JAX 2. So over PyTorch as it is compiled, JAX has
        0.93 of the speed on ResNet-50, 0.95 on the MLP, 1.0 on the LSTM, 1.25 on the small GPT and 1.7 on the toy.)",
    .predict =
        {{.arm = "jax_jit", .cases = {{"model", "resnet50"}}, .on = "h200", .speedup = {{0.836, 1.02}}},
         {.arm = "jax_jit", .cases = {{"model", "gpt_small"}}, .on = "h200", .speedup = {{1.12, 1.38}}},
         {.arm = "jax_jit", .cases = {{"model", "mlp"}}, .on = "h200", .speedup = {{0.857, 1.05}}},
         {.arm = "jax_jit", .cases = {{"model", "lstm"}}, .on = "h200", .speedup = {{0.95, 1.05}}},
         {.arm = "jax_jit", .cases = {{"model", "gpt_toy"}}, .on = "cpu", .speedup = {{1.5, 1.83}}},
         {.arm = "pytorch_eager", .cases = {{"model", "resnet50_128"}}, .on = "h200", .speedup = {{0.643, 0.786}}},
         {.arm = "pytorch_eager", .cases = {{"model", "gpt_small"}}, .on = "h200", .speedup = {{0.27, 0.33}}},
         {.arm = "pytorch_eager", .cases = {{"model", "gpt_toy"}}, .on = "cpu", .speedup = {{0.6, 0.733}}},
         {.arm = "libtorch_eager", .cases = {{"model", "resnet50"}}, .on = "h200", .speedup = {{0.643, 0.786}}},
         {.arm = "libtorch_eager", .cases = {{"model", "resnet50_128"}}, .on = "h200", .speedup = {{0.643, 0.786}}},
         {.arm = "libtorch_eager", .cases = {{"model", "gpt_small"}}, .on = "h200", .speedup = {{0.45, 0.55}}},
         {.arm = "libtorch_eager", .cases = {{"model", "mlp"}}, .on = "h200", .speedup = {{0.857, 1.05}}},
         {.arm = "libtorch_eager", .cases = {{"model", "lstm"}}, .on = "h200", .speedup = {{0.95, 1.05}}},
         {.arm = "libtorch_eager", .cases = {{"model", "gpt_toy"}}, .on = "cpu", .speedup = {{0.75, 0.917}}}},
    .found = R"(
        The MLP: JAX takes 1.56 ms, as predicted of it, and compiled PyTorch 2.18, which the device bounds: 1.40. Casts
        of 134 M weights to BF16 and of their gradients back, 1.6 GB or 0.4 ms, were not counted; the rest is not known.
        The toy on a CPU: eager has the predicted speed, but compiling saves 7 % and less, not a third: its optimizer
        stays eager; what else keeps it is not known.)",
    .claims = {"framework-matters", "no-framework-wins-everywhere"},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"pytorch_compiled", "jax_jit", "pytorch_eager", "libtorch_eager"},
    .controls = {"pytorch_eager", "libtorch_eager"},  // against what is compiled they lack the compiler's gain
    .python = {"pytorch_compiled", "jax_jit", "pytorch_eager"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"resnet50", "resnet50_128", "gpt_small", "lstm", "mlp", "gpt_toy"}}},
    .quick = {},  // a cold compile takes 20 s and more
    .run = run,
};
