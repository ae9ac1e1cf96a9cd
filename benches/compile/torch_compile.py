"""The arms of compile/torch_compile: a training step, eager and in the modes of torch.compile."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gpulift_work.torch_arms import make_arm
from gpulift_worker import Arm, Skip

MODES = {
    "eager": "",
    "default": "default",
    "reduce_overhead": "reduce-overhead",
    "max_autotune": "max-autotune",
}


ON_REQUEST = "GPULIFT_ON_REQUEST"  # names of arms, with commas between


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step of the point's model in the arm's mode."""
    if arm == "reduce_overhead" and gpu is None:
        raise Skip(
            "what it adds are graphs of a GPU, without one it is default", "use a machine with one"
        )
    if arm == "max_autotune" and arm not in os.environ.get(ON_REQUEST, "").split(","):
        raise Skip(
            "not asked for: its search takes 5 to 8 minutes a launch",  # on an H200
            f"ask for it: {ON_REQUEST}={arm}",
        )
    # Each launch tells what compiling cost: a claim is about it.
    return make_arm(str(point["model"]), seed, gpu, MODES[arm], always_cold=True)
