"""How busy other processes kept the processor while a command ran."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")
IDLE = (3, 4)  # idle and waiting for a disk, proc_stat(5)
GUEST = 8  # from here on counted in the first already


@dataclass(frozen=True)
class CoreTimes:
    """Seconds of all cores that were busy, and of our children that have ended."""

    busy_s: float
    children_s: float

    @staticmethod
    def now() -> CoreTimes:
        """Of this machine; no time at all where it does not say."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            words = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        except OSError:
            words = []
        ticks = [int(word) for word in words[:GUEST]]
        busy = sum(count for place, count in enumerate(ticks) if place not in IDLE)
        return CoreTimes(busy / os.sysconf("SC_CLK_TCK"), used.ru_utime + used.ru_stime)


def busy_elsewhere(before: CoreTimes, after: CoreTimes, seconds: float) -> float:
    """Cores that others kept busy in that time, of which our children are no part."""
    busy = after.busy_s - before.busy_s - (after.children_s - before.children_s)
    return max(0.0, busy / seconds) if seconds > 0 else 0.0
