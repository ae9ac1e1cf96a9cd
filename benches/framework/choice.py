"""The Python arms of framework/choice: the same training step in PyTorch and in JAX."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from gpulift_worker import Arm, Skip


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step of the point's model in the arm's framework."""
    name = str(point["model"])
    makers: dict[str, Callable[[], Arm]] = {
        "pytorch_eager": lambda: framework("gpulift_work.training").make_arm(name, seed, gpu, ""),
        # Graphs too, where the framework can: what a user gets with one word.
        "pytorch_compiled": lambda: framework("gpulift_work.training").make_arm(
            name, seed, gpu, "reduce-overhead"
        ),
        "jax_jit": lambda: framework("gpulift_work.jax_training").make_arm(
            name, seed, gpu, jit=True
        ),
    }
    return makers[arm]()


def framework(module: str) -> Any:
    """The module that trains in a framework; a process loads one alone, and skips without it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Skip(
            f"the Python package {error.name} is not installed",
            f"install {error.name}, or name another interpreter with --python",
        ) from error
