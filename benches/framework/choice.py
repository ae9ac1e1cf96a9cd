"""The Python arms of framework/choice: the same training step in PyTorch and in JAX."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_worker import Arm


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step of the point's model in the arm's framework. A process loads one alone."""
    name = str(point["model"])
    if arm == "jax_jit":
        from gpulift_work import jax_training

        return jax_training.make_arm(name, seed, gpu, jit=True)
    from gpulift_work import torch_arms

    # Graphs too, where the framework can: what a user gets with one word.
    return torch_arms.make_arm(
        name, seed, gpu, "reduce-overhead" if arm == "pytorch_compiled" else ""
    )
