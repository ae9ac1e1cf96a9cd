"""The arms of compile/xla: a training step in JAX, operation by operation and as one program."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_jax_training import make_arm
from gpulift_worker import Arm


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step of the point's model."""
    return make_arm(str(point["model"]), seed, gpu, jit=arm == "jit")
