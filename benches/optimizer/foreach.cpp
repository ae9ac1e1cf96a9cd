#include "core/harness/technique.hpp"

namespace {

void run(gpulift::Trial& trial) {
  const double parameters = trial.word("tensors") == "few" ? 4.0 * (1 << 22) : 150.0 * (1 << 12);
  // FP32: the gradient is read; parameter and both moments are read and written.
  trial.cost({.bytes = 7 * 4 * parameters, .items = parameters});
  trial.check({.meaning = "parameters after 3 steps against the loop in FP64, relative to the largest change",
               .tolerance = 1e-3});
  trial.compare({gpulift::python_arm("loop"), gpulift::python_arm("foreach"), gpulift::python_arm("fused")});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What do PyTorch's foreach and fused AdamW save over a loop of single-parameter updates?",
    .expectation =
        "The loop makes about 11 calls per tensor, foreach 11 per step, fused 1. Many tensors of 16 KiB: a call costs "
        "2 to 5 us in Python and dispatch, so the loop takes 150 x 11 x 3 us = 5 ms. On a GPU foreach and fused need "
        "under 0.5 ms, a factor above 10; on a CPU foreach calls per tensor still, but from C++, a factor of 2, and "
        "fused only the arithmetic, some 150 x 3 us, a factor of 10. Few tensors of 16 MiB: bound by memory. The loop "
        "and foreach move about 20 values per parameter in their 11 passes, fused 7: 1.0 for foreach, up to 2.9 for "
        "fused.",
    .needs_device = false,
    .arms = {"loop", "foreach", "fused"},
    .python = {"loop", "foreach", "fused"},
    .sweep = {{"tensors", {"many", "few"}}},
    .quick = {},  // three interpreters that load torch for each case and launch take longer than all else together
    .run = run,
};
