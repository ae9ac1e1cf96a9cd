"""The arms of compile/xla: a training step in PyTorch, and in JAX as one program and operation by
operation."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from gpulift_worker import Arm

MODES = {"torch": "", "torch_compiled": "reduce-overhead"}  # with graphs, where there is a GPU


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step of the point's model. A process loads one framework alone."""
    model = str(point["model"])
    if arm in MODES:
        made: Arm = import_module("gpulift_work.training").make_arm(model, seed, gpu, MODES[arm])
    else:
        made = import_module("gpulift_work.jax_training").make_arm(
            model, seed, gpu, jit=arm == "jit"
        )
    return made
