"""What rows measured over time: a line of JSON a point, and where their level changed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy import stats as scipy_stats

from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError, RecordError
from gpulift.ground.whole import write_whole
from gpulift.records.decode import decoded
from gpulift.records.values import Positive, Text
from gpulift.verdicts.decision import SMALLEST_ERROR

FILE = "history.jsonl"
LOCK = "history.lock"
LEAST_POINTS = 10  # below which nothing is said of a row
SEGMENT = 3  # points at least on either side of a change
LEAST_P = 1e-5  # a history is looked at after each commit, of many rows
LEAST_CHANGE = 0.005  # as two runs are compared


@dataclass(frozen=True)
class Point:
    """A number of a row: when (ISO 8601), of which commit, on what; `higher`: more is better."""

    row: Text
    value: Positive
    at: Text
    commit: str = ""
    machine: str = ""
    card: str = ""
    unit: str = ""
    higher: bool = False

    @property
    def same(self) -> tuple[str, ...]:
        """What two points of one measurement share."""
        return (self.row, self.at, self.commit, self.machine, self.card)

    @property
    def kind(self) -> str:
        """What two points share that can be compared."""
        return f"{self.unit or 'without a unit'} ({'more' if self.higher else 'less'} is better)"


@dataclass(frozen=True)
class Change:
    """A row whose level is another from the point `first` on, which has the place `place`."""

    row: str
    place: int
    first: Point
    before: float
    after: float
    p: float
    same_card: bool

    @property
    def worse(self) -> bool:
        """Whether the new level is the worse one."""
        return (self.after > self.before) != self.first.higher


def points_of(content: str, place: str) -> list[Point]:
    """Those of a history. Raises RecordError with the line."""
    return [
        decoded(line.encode(), Point, f"{place}:{number}")
        for number, line in enumerate(content.split("\n"), start=1)
        if line.strip()
    ]


def joined(held: Sequence[Point], more: Iterable[Point]) -> list[Point]:
    """With those that are new, in the order of their times. Raises GpuliftError as `rows_of`."""
    new = {point.same: point for point in more}
    for point in held:
        new.pop(point.same, None)
    both = sorted([*held, *new.values()], key=lambda point: point.at)
    rows_of(both)
    return both


def lines_of(points: Iterable[Point]) -> str:
    """As a history keeps them."""
    return "".join(json.dumps(asdict(point), allow_nan=False) + "\n" for point in points)


def read(folder: Path) -> list[Point]:
    """Those of a folder; none where there is no history yet."""
    file = folder / FILE
    try:
        return points_of(file.read_text("utf-8"), str(file))
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise RecordError(f"{file}: is no text") from None
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None


def write(folder: Path, points: Iterable[Point]) -> None:
    """Whole or not at all."""
    write_whole(lines_of(points), folder / FILE)


def rows_of(points: Iterable[Point]) -> dict[str, list[Point]]:
    """By row and machine, of which rows of one name are told apart, in order of time. Raises
    GpuliftError (not comparable) where a row is in two units."""
    rows: dict[str, list[Point]] = {}
    several = _on_several_machines(points := list(points))
    for point in points:
        name = f"{point.row} on {point.machine}" if point.row in several else point.row
        rows.setdefault(name, []).append(point)
        if (first := rows[name][0]).kind != point.kind:
            raise GpuliftError(
                f"{name}: not comparable: of {first.at} {first.kind}, of {point.at} {point.kind}:"
                " give what is measured now another name, or begin another history",
                NOT_COMPARABLE,
            )
    return rows


def _on_several_machines(points: Iterable[Point]) -> set[str]:
    machines: dict[str, set[str]] = {}
    for point in points:
        machines.setdefault(point.row, set()).add(point.machine)
    return {row for row, names in machines.items() if len(names) > 1}


def changes(row: str, points: Sequence[Point]) -> list[Change]:
    """Where the level changed, oldest first; nothing of fewer than LEAST_POINTS.

    The history is split where Student's t of the two sides is least likely by chance, as long as
    that is below LEAST_P and the levels differ by LEAST_CHANGE, and then each side again (binary
    segmentation; Scott and Knott, Biometrics 30 (1974), 507-512).
    """
    if len(points) < LEAST_POINTS:
        return []
    logs = np.log([point.value for point in points])
    splits = sorted(_splits(logs, 0))
    ends = [0, *(place for place, _ in splits), len(points)]
    found = []
    for number, (place, p) in enumerate(splits, start=1):
        before = float(np.exp(np.median(logs[ends[number - 1] : place])))
        after = float(np.exp(np.median(logs[place : ends[number + 1]])))
        cards = {point.card for point in points[ends[number - 1] : ends[number + 1]]}
        found.append(Change(row, place, points[place], before, after, p, len(cards) == 1))
    return found


def _splits(logs: np.ndarray, offset: int) -> Iterator[tuple[int, float]]:
    """Places of changes and how likely each is by chance."""
    places = range(SEGMENT, len(logs) - SEGMENT + 1)
    tested = [(_chance(logs[:place], logs[place:]), place) for place in places]
    if not tested:
        return
    p, place = min(tested)
    step = abs(float(np.median(logs[place:]) - np.median(logs[:place])))
    if p >= LEAST_P or step < math.log1p(LEAST_CHANGE):
        return
    yield from _splits(logs[:place], offset)
    yield offset + place, p
    yield from _splits(logs[place:], offset + place)


def _chance(before: np.ndarray, after: np.ndarray) -> float:
    """Of a difference like theirs, by Student's t with the spread that both have."""
    sizes = np.array([len(before), len(after)])
    spreads = np.array([np.var(before, ddof=1), np.var(after, ddof=1)])
    degrees = sizes.sum() - 2
    pooled = float(spreads @ (sizes - 1)) / degrees
    error = max(math.sqrt(pooled * float((1 / sizes).sum())), SMALLEST_ERROR)
    distance = abs(float(np.mean(after) - np.mean(before))) / error
    return 2 * float(scipy_stats.t.sf(distance, degrees))
