#include <cstdint>
#include <string>

#include "core/harness/technique.hpp"

namespace {

/// What a step of a model is, as xla.py trains it.
struct Size {
  double flops;  // three products for each one forward, two operations per multiply-add
  double items;
  std::string item;
  std::string roof;
  double tolerance;  // of the losses of 5 steps, relative to FP32, or in PyTorch TF32
};

/// A GPT's products: per token 12 width^2 per layer, two of tokens x width for attention, of which the half counts that
/// is not masked, and the output layer.
double gpt_flops(double rows, double layers, double width, double tokens, double vocabulary) {
  return 3 * 2 * rows * tokens * (layers * (12 * width * width + tokens * width) + width * vocabulary);
}

Size size_of(const std::string& model) {
  if (model == "gpt_small") return {gpt_flops(1, 4, 768, 128, 50304), 128, "token", "gemm/bf16", 0.005};
  if (model == "gpt_toy") return {gpt_flops(8, 2, 64, 32, 64), 8 * 32, "token", "", 0.001};
  // 8 layers, but the first needs no gradient of its input.
  return {2.0 * 256 * 4096 * 4096 * (3 * 8 - 1), 256, "sample", "gemm/bf16", 0.02};
}

void run(gpulift::Trial& trial) {
  const Size size = size_of(trial.word("model"));
  if (!trial.has_device() && !size.roof.empty()) {
    trial.skip("steps of this size take seconds without a GPU", "run it on a machine with a GPU");
  }
  trial.cost({.flops = size.flops, .items = size.items, .item = size.item, .roof = size.roof});
  trial.check(
      {.meaning = "losses of 5 steps from the same weights on the same batch, against FP32, relative to the first",
       .tolerance = size.tolerance});
  trial.compare({gpulift::python_arm("torch"), gpulift::python_arm("torch_compiled"), gpulift::python_arm("jit"),
                 gpulift::python_arm("no_jit")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Is a training step that XLA compiles faster than PyTorch's, and what would JAX be without its jit?",
    .expectation = R"(
        The small GPT in eager PyTorch: 400 launches of 5 to 10 us, 3 to 4 ms; in one program of XLA 1.5 ms: 2 to 2.5.
        With torch.compile and graphs 1.2 ms, 3. The MLP in BF16: 0.4 ms of products and 134 M parameters x 40 bytes /
        3 to 4.1 TB/s = 1.3 to 1.8 ms of optimizer, which is one kernel in torch already and is fused by XLA: 1.0 for
        both. The toy GPT on a CPU: PyTorch 4 ms, compiled and XLA 2 ms. Compiling takes 3 to 10 s. no_jit is a control,
        as nobody trains so: every operation is a call of its own, some 20 to 50 us of Python and dispatch. The small
        GPT: 150 operations a layer and 8 per parameter tensor in the optimizer, 52 x 8: some 1000 calls, 30 to 50 ms,
        0.1 of PyTorch; the MLP some 300 calls, 10 ms, 0.2; the toy 500 calls of 30 us, 15 ms. Against it jit has paid
        after some 200 steps.)",
    .predict = {{.arm = "torch", .cases = {{"model", "gpt_small"}}, .on = "nvidia", .step_time_s = {{3e-3, 4e-3}}},
                {.arm = "torch_compiled", .cases = {{"model", "gpt_small"}}, .on = "nvidia", .speedup = {{2.7, 3.3}}},
                {.arm = "jit", .cases = {{"model", "gpt_small"}}, .on = "nvidia", .speedup = {{2, 2.5}}},
                {.arm = "no_jit", .cases = {{"model", "gpt_small"}}, .on = "nvidia", .speedup = {{0.09, 0.11}}},
                {.arm = "torch_compiled", .cases = {{"model", "mlp"}}, .on = "nvidia", .speedup = {{0.95, 1.05}}},
                {.arm = "jit", .cases = {{"model", "mlp"}}, .on = "nvidia", .speedup = {{0.95, 1.05}}},
                {.arm = "no_jit", .cases = {{"model", "mlp"}}, .on = "nvidia", .speedup = {{0.18, 0.22}}},
                {.arm = "torch_compiled", .cases = {{"model", "gpt_toy"}}, .on = "cpu", .speedup = {{1.8, 2.2}}},
                {.arm = "jit", .cases = {{"model", "gpt_toy"}}, .on = "cpu", .speedup = {{1.8, 2.2}}},
                {.arm = "no_jit", .cases = {{"model", "gpt_toy"}}, .on = "cpu", .speedup = {{0.24, 0.293}}}},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"torch", "torch_compiled", "jit", "no_jit"},
    .controls = {"torch_compiled", "no_jit"},
    .python = {"torch", "torch_compiled", "jit", "no_jit"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"gpt_small", "mlp", "gpt_toy"}}},
    .quick = {},  // four interpreters that load a framework for each case and launch
    .run = run,
};
