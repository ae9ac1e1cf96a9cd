"""The Python arms of framework/choice: the same training step in PyTorch and in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from gpulift_worker import Arm


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step of the point's model in the arm's framework."""
    name = str(point["model"])
    makers: dict[str, Callable[[], Arm]] = {
        "pytorch_eager": lambda: import_module("gpulift_work.training").make_arm(
            name, seed, gpu, ""
        ),
        # Graphs too, where the framework can: what a user gets with one word.
        "pytorch_compiled": lambda: import_module("gpulift_work.training").make_arm(
            name, seed, gpu, "reduce-overhead"
        ),
        "jax_jit": lambda: import_module("gpulift_work.jax_training").make_arm(
            name, seed, gpu, jit=True
        ),
    }
    return makers[arm]()
