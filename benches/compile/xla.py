"""The arms of compile/xla: a training step in PyTorch, and in JAX as one program and operation by
operation."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_worker import Arm

MODES = {"torch": "", "torch_compiled": "reduce-overhead"}  # with graphs, where there is a GPU


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step of the point's model. A process loads one framework alone."""
    model = str(point["model"])
    if arm in MODES:
        from gpulift_work import torch_arms

        return torch_arms.make_arm(model, seed, gpu, MODES[arm])
    from gpulift_work import jax_training

    return jax_training.make_arm(model, seed, gpu, jit=arm == "jit")
