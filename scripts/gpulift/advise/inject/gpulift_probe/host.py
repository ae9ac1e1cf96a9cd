"""Which lines of the script keep the host busy within a step, outside of torch."""

from __future__ import annotations

import bisect
import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from types import FrameType

from .missing import INSTALLED
from .switch import _PROBE, _TORCH

EVERY_S = 1e-3
LEAST, MOST_LINES = 3, 3  # times that a line was seen, and lines
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_LOADER = os.path.join(_TORCH, "utils", "data")  # what a step waits for there is told as input


class Host:
    """Looks at the thread that made it, from then on."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._seen: list[tuple[float, str]] = []  # when, and the line or nothing
        self._over = threading.Event()
        self._interval_s = sys.getswitchinterval()
        sys.setswitchinterval(EVERY_S / 2)  # else lines of Python are seen every 5 ms
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def _look(self) -> None:
        while not self._over.wait(EVERY_S):
            frame = sys._current_frames().get(self._thread)
            self._seen.append((time.perf_counter(), _line(frame)))

    def end(self, operators: Iterable[tuple[float, float]]) -> dict[str, float]:
        """The share of the time that lines took while none of these operators ran."""
        self._over.set()
        self._looking.join()
        sys.setswitchinterval(self._interval_s)
        spans = sorted(operators)
        begun_s = [began_s for began_s, _ in spans]
        ended_s = list(itertools.accumulate((end_s for _, end_s in spans), max))

        def outside(at_s: float) -> bool:
            place = bisect.bisect(begun_s, at_s) - 1
            return place < 0 or ended_s[place] < at_s

        lines = Counter(line for at_s, line in self._seen if line and outside(at_s))
        most = lines.most_common(MOST_LINES)
        return {line: count / len(self._seen) for line, count in most if count >= LEAST}


def _line(frame: FrameType | None) -> str:
    """The script's, which runs itself or what is not torch's."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith((_TORCH, _PROBE)):
            return ""
        packaged = file.startswith((_LIBRARY, "<")) or any(one in file for one in INSTALLED)
        if not packaged:
            return "" if _loads(frame) else f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _loads(frame: FrameType | None) -> bool:
    """Whether a loader called it, in the training's own process."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_LOADER):
            return True
        frame = frame.f_back
    return False
