"""What the probe was told, and how it says what it sees."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .ranks import own_rank

PLAN, FILE = "GPULIFT_ADVISE", "GPULIFT_ADVISE_SAID"
PHASES_S = 0.5


def plan() -> dict[str, Any]:
    """What the process is to do: {"mode": "replay"|"live"|"turn", ...}."""
    told: dict[str, Any] = json.loads(os.environ[PLAN])
    return told


class Said:
    """Messages, each a line of JSON, of the one process that trains; of several ranks each has a
    file of its own."""

    def __init__(self) -> None:
        self._file = os.environ[FILE]
        self._phase_s = -PHASES_S

    def imported(self) -> None:
        """The first process that imports torch says so."""
        if not os.path.exists(self._file):
            self.phase("waits for the first step of an optimizer")

    def owns(self) -> bool:
        """Whether this process is the first of its rank that asks: only one may say something."""
        if rank := own_rank():
            self._file += f".{rank}"
        try:
            os.close(os.open(f"{self._file}.owner", os.O_CREAT | os.O_EXCL))
        except OSError:  # it is there, or nobody listens any more
            return False
        return True

    def __call__(self, kind: str, **values: Any) -> None:
        """One message. It is whole in the file when this returns."""
        line = json.dumps({"say": kind, **values}) + "\n"
        with open(self._file, "a", encoding="utf-8") as file:
            file.write(line)

    def phase(self, text: str) -> None:
        """What is done now, for whoever waits; at most twice a second."""
        now_s = time.monotonic()
        if now_s - self._phase_s >= PHASES_S:
            self._phase_s = now_s
            self("phase", text=text)
