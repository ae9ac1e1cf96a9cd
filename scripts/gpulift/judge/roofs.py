"""How fast this machine can be at most: a call that was faster did not do its work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpulift.ground import text

SIZES = (1 << 14, 1 << 17, 1 << 20, 1 << 24)  # of copies, in each cache and beyond
EDGES = (64, 128, 256)  # of products, on one core and on several: too high a roof is safe
TRIES = 50  # short ones, so that some of them had their core alone
ABOVE = 2.0  # what may be faster than ours: another library, a neighbour that has left


@dataclass(frozen=True)
class Roofs:
    """Bytes and operations a second."""

    bandwidth: float
    operations: float

    def least_s(self, work: tuple[float, float]) -> float:
        """No call with so many bytes and operations takes less."""
        return max(work[0] / self.bandwidth, work[1] / self.operations)

    def told(self, seconds: float, work: tuple[float, float]) -> str:
        """Why a call cannot have been: both numbers."""
        return (
            f"a call of {text.seconds(seconds)} cannot be: {text.rate(work[0], 'B')} and"
            f" {text.rate(work[1], 'operations')} take {text.seconds(self.least_s(work))} at least"
            f" under roofs of {text.rate(self.bandwidth, 'B/s')} and"
            f" {text.rate(self.operations, 'FLOP/s')}"
        )


def measured() -> Roofs:
    """Of the processor, with all cores, by numpy: twice what was seen."""
    cores = os.cpu_count() or 1
    bandwidth = 0.0
    for size in SIZES:
        source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
        seconds = _best(lambda a=target, b=source: np.copyto(a, b))  # type: ignore[misc]
        bandwidth = max(bandwidth, 2 * size / seconds)
    operations = 0.0
    for edge in EDGES:
        factor, made = (np.ones((edge, edge), np.float32) for _ in range(2))
        seconds = _best(lambda a=factor, b=made: np.matmul(a, a, out=b))  # type: ignore[misc]
        operations = max(operations, 2 * edge**3 / seconds)
    return Roofs(ABOVE * cores * bandwidth, ABOVE * cores * operations)


def _best(step: Callable[[], Any]) -> float:
    times = []
    for _ in range(TRIES):
        began_s = time.perf_counter()
        step()
        times.append(time.perf_counter() - began_s)
    return max(min(times), 1e-9)
