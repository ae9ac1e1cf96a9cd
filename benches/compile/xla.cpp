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
  double tolerance;  // of the losses of 20 steps, relative to FP32
};

/// A GPT's products: per token 12 width^2 per layer, two of tokens x width for attention in full, and the output layer.
double gpt_flops(double rows, double layers, double width, double tokens, double vocabulary) {
  return 3 * 2 * rows * tokens * (layers * (12 * width * width + 2 * tokens * width) + width * vocabulary);
}

Size size_of(const std::string& model) {
  if (model == "gpt_small") return {gpt_flops(1, 4, 768, 128, 50257), 128, "token", "gemm/bf16", 0.05};
  if (model == "gpt_toy") return {gpt_flops(8, 2, 64, 32, 64), 8 * 32, "token", "", 0.001};
  // 8 layers, but the first needs no gradient of its input.
  return {2.0 * 256 * 4096 * 4096 * (3 * 8 - 1), 256, "sample", "gemm/bf16", 0.05};
}

void run(gpulift::Trial& trial) {
  const Size size = size_of(trial.word("model"));
  if (!trial.has_device() && !size.roof.empty()) {
    trial.skip("steps of this size take seconds without a GPU", "run it on a machine with a GPU");
  }
  trial.cost({.flops = size.flops, .items = size.items, .item = size.item, .roof = size.roof});
  trial.check(
      {.meaning = "losses of 20 steps from the same weights on the same batch, against FP32, relative to the first",
       .tolerance = size.tolerance});
  trial.compare({gpulift::python_arm("no_jit"), gpulift::python_arm("jit")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does XLA's jit save of a whole training step in JAX, and after how many steps has it paid?",
    .expectation = R"(
        Without jit every operation is a call of its own, some 20 to 50 us of Python and dispatch. The small GPT: 60
        operations a layer forward, 150 with backward, and 8 per parameter tensor in the optimizer, 52 x 8: some 1000
        calls, 30 to 50 ms; in one program 1.5 ms: a factor of 20 to 30. The MLP in BF16: some 300 calls, 10 ms, against
        0.4 ms of products and 134 M parameters x 60 bytes / 4.1 TB/s = 2 ms of optimizer without fusion, hidden behind
        the calls; jitted 0.4 + 1.0 ms: a factor of 5 to 7. Compiling takes 3 to 10 s, paid after some 200 steps. The
        toy GPT on a CPU: 500 calls of 30 us, 15 ms, against 2 ms: a factor of 8.)",
    .claims = {"xla-jit-faster"},
    .gpus = 0,
    .whole_steps = true,
    .arms = {"no_jit", "jit"},
    .python = {"no_jit", "jit"},
    .sweep = {{"model", {"gpt_small", "mlp", "gpt_toy"}}},
    .quick = {},  // two interpreters that load JAX for each case and launch
    .run = run,
};
