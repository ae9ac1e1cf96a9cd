"""The arms of fusion/rms_norm in Python."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.kernels import norm_arm
from gpulift_worker import Arm

TOLERANCES = {"torch": 1 / 64, "written_out": 1 / 16, "compiled": 1 / 64, "liger": 1 / 16}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A pass of the case."""
    which, shape = str(point["pass"]), (int(point["rows"]), int(point["width"]))
    tolerance = TOLERANCES[arm]
    return norm_arm(arm, "rms_norm", which, shape, residual=False, tolerance=tolerance, gpu=gpu)
