"""A launch of a gate of somebody's command: pairs of runs of base and head, in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from gpulift.gate.metrics import Reading, Untimed
from gpulift.ground.errors import RecordError
from gpulift.ground.whole import write_whole
from gpulift.records.decode import decoded
from gpulift.records.values import Maybe, NotNegative, Positive

LAUNCH_FILE = "launch.json"
ROWS = ("values", "untimed")  # of a run


@dataclass(frozen=True)
class Run:
    """One process: its numbers by row, or why there are none, its seconds, how many cores other
    processes kept busy meanwhile, the rows that it had no number of, and by name the processes that
    it left behind."""

    values: Mapping[str, Reading] = field(default_factory=dict)
    seconds: NotNegative = 0.0
    reason: str = ""
    other_cores: NotNegative = 0.0
    untimed: Mapping[str, Untimed] = field(default_factory=dict)
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dropped:
    """A run that failed before its pair was taken again."""

    side: str
    reason: str


@dataclass(frozen=True)
class Pair:
    """A run of each side, in their order."""

    order: tuple[str, ...]
    base: Run
    head: Run

    def of(self, side: str) -> Run:
        """The run of a side, "base" or "head"."""
        return self.base if side == "base" else self.head

    def log_ratio(self, row: str) -> float:
        """Above 0 where the head is worse. Raises KeyError where a side did not say the row."""
        base, head = self.base.values[row], self.head.values[row]
        log = math.log(head.value / base.value)
        return -log if base.higher else log


@dataclass(frozen=True)
class PairedLaunch:
    """The pairs of a launch, and the runs that failed before them; `planted` is the fraction by
    which the numbers of the head were made worse."""

    pairs: tuple[Pair, ...]
    planted: Maybe[Positive] = None
    dropped: tuple[Dropped, ...] = ()

    def failed(self, row: str) -> tuple[str, str] | None:
        """The side that lacks the row, and why; None where all pairs have it."""
        for pair in self.pairs:
            for side in pair.order:
                if reason := pair.of(side).reason:
                    return side, reason
        for pair in self.pairs:
            for side in pair.order:
                run = pair.of(side)
                if row not in run.values:
                    untimed = run.untimed.get(row)
                    return side, untimed.reason if untimed else f"did not say {row}"
        return None

    def units(self, row: str) -> set[str]:
        """Of a row that all pairs have."""
        return {run.values[row].unit for pair in self.pairs for run in (pair.base, pair.head)}

    def log_ratio(self, row: str) -> float:
        """The median of the pairs, which one that was disturbed does not move."""
        return median(pair.log_ratio(row) for pair in self.pairs)


def write_launch(folder: Path, launch: PairedLaunch) -> None:
    """Whole or not at all."""
    made = {
        "pairs": [
            {"order": pair.order, "base": _as_json(pair.base), "head": _as_json(pair.head)}
            for pair in launch.pairs
        ],
        "dropped": [vars(one) for one in launch.dropped],
        **({} if launch.planted is None else {"planted": launch.planted}),
    }
    write_whole(json.dumps(made, allow_nan=False, indent=1) + "\n", folder / LAUNCH_FILE)


def read_launch(folder: Path) -> PairedLaunch | None:
    """None where it was broken off before it had all of its pairs."""
    file = folder / LAUNCH_FILE
    try:
        launch = decoded(file.read_bytes(), PairedLaunch, str(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror}") from None
    if not launch.pairs:
        raise RecordError(f"{file}: pairs is empty")
    return launch


def _as_json(run: Run) -> dict[str, object]:
    rows = {key: {row: vars(one) for row, one in getattr(run, key).items()} for key in ROWS}
    return {**vars(run), **rows}
