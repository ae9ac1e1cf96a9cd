"""A step of an accelerator that is not there, and how long a step takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

TIMED_STEPS = 5


@dataclass(frozen=True)
class SleepingStep:
    """Takes this time, and no processor: whatever feeds it has the machine to itself."""

    seconds: float

    def __call__(self) -> None:
        time.sleep(self.seconds)

    def __str__(self) -> str:
        return f"emulated: sleeps {1e3 * self.seconds:g} ms"


def alone_s(step: Callable[[], object]) -> float:
    """What a step takes now: the median of a few."""
    times_s = []
    for _ in range(TIMED_STEPS):
        start_s = time.monotonic()
        step()
        times_s.append(time.monotonic() - start_s)
    return statistics.median(times_s)
