"""The arms of fusion/rms_norm in Python."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.kernels import NormRows
from gpulift_work.training import arm_on, device_of, set_up
from gpulift_worker import Arm

TOLERANCES = {"torch": 1 / 64, "written_out": 1 / 16, "compiled": 1 / 64, "liger": 1 / 16}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A pass by the arm's kernels, replayed as a graph."""
    device = device_of(gpu)
    threads = set_up(device)
    which = str(point["pass"])
    shape = int(point["rows"]), int(point["width"])
    rows = NormRows("rms_norm", shape, residual=False, device=device)
    replay = rows.replay(arm, which)
    return arm_on(
        device,
        threads,
        step=replay.step,
        error=lambda: rows.error(replay.results, which),
        tolerance=TOLERANCES[arm],
        wake=rows.renew,
    )
