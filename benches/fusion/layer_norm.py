"""The arms of fusion/layer_norm in Python: a norm behind the addition of a residual."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.kernels import NormRows
from gpulift_work.training import arm_on, device_of, set_up
from gpulift_worker import Arm

WIDTH = 768  # of GPT-2 124M
# In units of the last place of BF16, 1/256: torch rounds twice on the way. Inductor normalises the
# sum before it is rounded, Liger rounds once more.
TOLERANCES = {"torch": 1 / 32, "compiled": 1 / 16, "liger": 1 / 16}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A pass by the arm's kernels, replayed as a graph."""
    device = device_of(gpu)
    threads = set_up(device)
    which = str(point["pass"])
    shape = int(point["rows"]), WIDTH
    rows = NormRows(str(point["norm"]), shape, residual=True, device=device)
    replay = rows.replay(arm, which)
    return arm_on(
        device,
        threads,
        step=replay.step,
        error=lambda: rows.error(replay.results, which),
        tolerance=TOLERANCES[arm],
        wake=rows.renew,
    )
