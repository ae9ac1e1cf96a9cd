"""compile/regions: how much of a training step torch.compile is given at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic

import torch
from gpulift_work import repeats
from gpulift_work.compiled import compile_each_layer, compile_model
from gpulift_work.first_steps import FirstSteps
from gpulift_work.torch_arms import compilation
from gpulift_work.training import (
    Training,
    device_of,
    keep_the_compiler_quiet,
    make_optimizer,
    require_compiler,
    require_gpu_for,
    set_up,
    use_cache_of_run,
)
from gpulift_worker import Arm, Skip, spent

TECHNIQUE = {
    "question": "How much of a step should torch.compile get: layers, the model with its loss, or "
    "the optimizer, too?",
    "expectation": """
        llama_1b, 8192 tokens, BF16 on an H100: eager 182 ms, of which products and attention are
        110 and AdamW, in one kernel already, 12. Compiled, what lies between passes once over
        memory: 1.25 for the model as a whole, and as much for layers one by one, which are alike:
        between them is a state that is written anyway. The optimizer, compiled from its loop over
        tensors, moves what the fused kernel moves: 1.25. Searched kernels for products find those
        of cuBLAS again: 1.26. Cold, the model takes 50 s, a layer with the loss 10, the optimizer
        20 more, a search two minutes. After a reset kernels are found, and tracing is left: 15 s
        and 3; what a new process takes beside is not measured. So layers have paid after 10 s / 36
        ms = 300 steps, the model after 1400. GPT-2, 8 x 1024 tokens: eager 27 ms, half of it
        passes: 1.4, layers 1.35. The toy on a processor is all overhead: 1.2.
    """,
    "predict": [
        "model:llama_1b @h100: eager 173-191 ms, model 1.19-1.32, layers 1.17-1.32,"
        " whole_step 1.15-1.32, searched 1.17-1.35",
        "model:gpt2 @h100: eager 24-30 ms, model 1.25-1.55, layers 1.2-1.5, whole_step 1.2-1.55,"
        " searched 1.2-1.55",
    ],
    "whole_steps": True,
    "arms": ["eager", "layers", "model", "whole_step", "searched"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["llama_1b", "gpt2", "llama_toy"]},
    "check": {
        "meaning": "gradients of the first step against TF32's, relative to their norm",
        "tolerance": 0.1,  # BF16: 0.044 of llama_1b, 0.009 of gpt2
    },
}
TIMED_STEPS = 5  # of what a step takes once it is compiled, and eager


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step in BF16 of which so much is compiled; its metrics say what that cost."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    whole = repeats.expected() is None
    if arm not in ("eager", "layers") and device.type == "cpu":
        raise Skip("compiling as much takes minutes on a processor", "use a machine with a GPU")
    if arm != "eager":
        require_compiler(device)
        keep_the_compiler_quiet()
        use_cache_of_run(f"regions-{name}-{arm}", cold=whole)
    threads = set_up(device)
    job = Job(name, device, seed)
    job.training.bf16 = True
    made = job.arm(threads, roof="" if name == "llama_toy" else "gemm/bf16")
    if arm == "eager":
        return made
    eager_step_s = job.training.step_time_s(TIMED_STEPS) if whole else 0.0
    job.begin()
    REGIONS[arm](job.training)
    with spent("compile"):
        cold_start_s = first_step_s(job.training)

    def metrics() -> dict[str, float]:
        step_s = job.training.step_time_s(TIMED_STEPS)
        cost = compilation(cold_start_s, eager_step_s, step_s)
        torch.compiler.reset()  # kernels are on disk still, and loaded: a new process takes longer
        with spent("compile"):
            cost["start_after_reset_s"] = first_step_s(job.training)
        return {**cost, **made.metrics()}

    # A later launch finds what the first one compiled.
    return replace(made, metrics=metrics) if whole else made


class Job(FirstSteps):
    """A training that keeps its moments' tensors while it rests, without their memory: an optimizer
    is compiled for these, and would be for others anew."""

    def moments(self) -> list[torch.Tensor]:
        """And the counts of steps."""
        states = self.training.optimizer.state.values()
        return [value for state in states for value in state.values()]

    def drop_moments(self) -> None:
        for moment in self.moments():
            moment.untyped_storage().resize_(0)

    def begin(self) -> None:
        super().begin()
        for moment in self.moments():
            moment.untyped_storage().resize_(moment.nbytes)
            moment.zero_()


def first_step_s(training: Training) -> float:
    """Seconds until the first step has ended."""
    training.synchronize()
    start_s = monotonic()
    training.step()
    training.synchronize()
    return monotonic() - start_s


def compile_whole_step(training: Training) -> None:
    """The optimizer by itself: the compiler makes its own of torch's loop over tensors."""
    compile_model(training)
    parameters = list(training.model.parameters())
    training.optimizer = make_optimizer(training.model_name, parameters, fused=None)
    training.optimizer.step = torch.compile(training.optimizer.step)


REGIONS: dict[str, Callable[[Training], None]] = {
    "layers": compile_each_layer,
    "model": compile_model,
    "whole_step": compile_whole_step,
    # Without graphs, which keep the memory of what they replay.
    "searched": lambda training: compile_each_layer(training, "max-autotune-no-cudagraphs"),
}
