"""Two arms that take a known time of the processor, whatever else runs beside them.

`./gpulift doctor --instrument` measures them like any technique, and knows what has to come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import process_time

from gpulift_worker import Arm

ARMS = ["once", "twice"]
KNOWN_S = {"once": 0.02, "twice": 0.04}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A loop that is busy until the process has had that time."""

    def step() -> None:
        end_s = process_time() + KNOWN_S[arm]
        while process_time() < end_s:
            pass

    return Arm(step=step, metrics=lambda: {"known_cpu_s": KNOWN_S[arm]})
