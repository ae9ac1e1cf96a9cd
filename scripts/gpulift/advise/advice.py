"""What is told of a script: `dataclasses.asdict` makes JSON of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpulift.advise import remedies
from gpulift.ground.estimate import Estimate

HELPS, HURTS, NO_CHANGE, UNDECIDED = "helps", "hurts", "no change", "undecided"
UPPER_BOUND, ALREADY_ON, RESULT_DIFFERS = "upper bound", "already on", "result differs"
OTHER_WORK, FAILED = "other work", "failed"
NOT_SET, NOT_APPLICABLE, NOT_TRIED = "not set", "not applicable", "not tried"
VERDICTS = (  # in the order of rows
    *(UPPER_BOUND, HELPS, ALREADY_ON, UNDECIDED, NO_CHANGE, HURTS, OTHER_WORK, RESULT_DIFFERS),
    *(FAILED, NOT_SET, NOT_APPLICABLE, NOT_TRIED),
)


class Span(NamedTuple):
    """A quantity with its 95 % interval, which is absent of one launch."""

    mid: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, estimate: Estimate | None) -> Span | None:
        """The same without how many launches there were."""
        return cls(estimate.value, estimate.low, estimate.high) if estimate else None

    @property
    def estimate(self) -> Estimate:
        """As texts are made of."""
        return Estimate(*self)


@dataclass(frozen=True)
class Wide:
    """How far launches of a change were apart, and how many more would tell what it is worth."""

    spread: float
    more: int


@dataclass(frozen=True)
class Row:
    """One change. A gain above 1 is faster; that of what is already on is what it brings."""

    name: str
    label: str
    verdict: str = ""
    gain: Span | None = None
    step_s: float | None = None  # with the change
    result: str = ""
    memory_bytes: int | None = None  # more on the device, where worth telling
    host_bytes: int | None = None
    least: float | None = None  # the smallest effect that would have been seen, as a share
    why: str = ""
    wide: Wide | None = None  # of what launches that differ leave undecided


@dataclass(frozen=True)
class Advice:
    """The whole answer. `wait_share` is what of a step waits for input."""

    device: str
    torch: str
    launches: int
    steps: int
    step_s: Span | None
    cached_s: Span | None
    wait_share: Span | None
    bound: str
    probe_share: float | None
    rows: tuple[Row, ...]
    together: Row | None
    do: tuple[str, ...]
    not_tried: tuple[str, ...]
    notes: tuple[str, ...]
    pace: tuple[str, ...] = ()  # said first
    noise: tuple[str, ...] = ()  # in place of rows that are undecided for it


def winners(rows: Sequence[Row]) -> list[Row]:
    """What helps, the best first; of changes that exclude one another the best alone."""
    helpful = [row for row in rows if row.verdict == HELPS and row.gain]
    best: dict[str, Row] = {}
    for row in sorted(helpful, key=lambda row: -(row.gain.mid if row.gain else 0)):
        best.setdefault(remedies.kind(row.name), row)
    return list(best.values())
