"""The arms of compile/torch_compile: a training step, eager and in the modes of torch.compile."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.training import make_arm
from gpulift_worker import Arm, Skip

MODES = {
    "eager": "",
    "default": "default",
    "reduce_overhead": "reduce-overhead",
    "max_autotune": "max-autotune",
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step of the point's model in the arm's mode."""
    if arm == "reduce_overhead" and gpu is None:
        raise Skip(
            "what it adds are graphs of a GPU, without one it is default", "use a machine with one"
        )
    return make_arm(str(point["model"]), seed, gpu, MODES[arm])
