"""The arms of fusion/layer_norm in Python: a norm behind the addition of a residual."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.kernels import norm_arm
from gpulift_worker import Arm

# In units of the last place of BF16, 1/256: torch rounds twice on the way. Inductor normalises the
# sum before it is rounded, Liger rounds once more.
TOLERANCES = {"torch": 1 / 32, "compiled": 1 / 16, "liger": 1 / 16}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A pass of the case."""
    norm, which = str(point["norm"]), str(point["pass"])
    rows, columns = (int(side) for side in str(point["shape"]).split("x"))
    return norm_arm(
        arm, norm, which, (rows, columns), residual=True, tolerance=TOLERANCES[arm], gpu=gpu
    )
