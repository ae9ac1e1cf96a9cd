"""The ledger of predictions, `results/predictions.tsv`: what techniques predicted, and since when.

One line each: of an arm in the cases that have these values, on machines whose names have the part
`on`, a range of its speedup `over` another arm, or without one of the seconds of its step. Lines
are appended and never changed. A later line of the same case, machine and arm replaces an earlier
one; `remark` says what a reader has to know of it:

- `in words`: it stood in the technique's text by then, and was put into numbers on 2026-11-27.
- `after ID`: it was written when that record had been measured, or a launch that was not kept.
- `withdrawn`: no range stands any more.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpulift.analysis.today import UNKNOWN, Today
from gpulift.engine.machine import CasePrediction, TechniqueInfo
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Record
from gpulift.verdicts import stats

FILE = "predictions.tsv"
COLUMNS = ("since", "technique", "case", "on", "arm", "over", "low", "high", "remark")
AFTER = "after "
IN_WORDS = "in words"
WITHDRAWN = "withdrawn"

Subject = tuple[str, frozenset[str], str, str, bool]


@dataclass(frozen=True)
class Line:
    """A prediction; `since` is UTC, as 2026-11-27T10:31:04Z."""

    since: str
    technique: str
    case: str  # axis:value pairs joined by a slash; empty: all
    on: str
    arm: str
    over: str  # the baseline of a speedup; empty: seconds of a step
    low: float = 0.0
    high: float = 0.0
    remark: str = ""

    @property
    def subject(self) -> Subject:
        """What it is of: a later line of the same replaces it."""
        pairs = frozenset(filter(None, self.case.split("/")))
        return self.technique, pairs, self.on, self.arm, bool(self.over)

    @property
    def after(self) -> str:
        """What had been measured when it was written; empty of a prediction."""
        return self.remark.removeprefix(AFTER) if self.remark.startswith(AFTER) else ""

    @property
    def same_range(self) -> tuple[Subject, str, float, float]:
        """Equal of two lines that say the same."""
        return self.subject, self.over, self.low, self.high

    def is_of(self, record: Record, today: Today = UNKNOWN) -> bool:
        """Whether the record measured what it is of; its case may have gained an axis since."""
        return (
            record.technique == self.technique
            and self.on in record.context.slug
            and self.subject[1] <= _pairs(record, today)
            and bool(stats.measured_arms([record], self.arm))
            and (not self.over or bool(stats.measured_arms([record], self.over)))
        )

    def cells(self) -> list[str]:
        """As the file has them."""
        ends = ["", ""] if self.remark == WITHDRAWN else [f"{self.low!r}", f"{self.high!r}"]
        ends = [end.removesuffix(".0") for end in ends]
        named = (self.since, self.technique, self.case, self.on, self.arm, self.over)
        return [*named, *ends, self.remark]


def _pairs(record: Record, today: Today) -> set[str]:
    """Of its case as it was and as it is called today; all were of bursts before regimes."""
    own = {f"{axis}:{value}" for axis, value in record.case.items()}
    return own | {f"regime:{record.regime}"} | set(today.case_id(record).split("/"))


def read_ledger(file: Path) -> tuple[Line, ...]:
    """All lines, oldest first. Throws GpuliftError with the line that is none."""
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            rows = list(csv.reader(opened, delimiter="\t"))
    except (OSError, ValueError, csv.Error) as error:
        raise GpuliftError(f"{file}: cannot be read: {error}") from None
    if not rows or tuple(rows[0]) != COLUMNS:
        raise GpuliftError(f"{file}: does not begin with the columns {' '.join(COLUMNS)}")
    return tuple(_line(cells, f"{file}:{at}") for at, cells in enumerate(rows[1:], start=2))


def _line(cells: Sequence[str], place: str) -> Line:
    if len(cells) != len(COLUMNS):
        raise GpuliftError(f"{place}: has {len(cells)} cells for {len(COLUMNS)} columns")
    since, technique, case, on, arm, over, low, high, remark = cells
    try:
        ends = (0.0, 0.0) if remark == WITHDRAWN else (float(low), float(high))
    except ValueError:
        raise GpuliftError(f"{place}: {low!r} to {high!r} is no range of numbers") from None
    if remark != WITHDRAWN and not 0 < ends[0] <= ends[1] < math.inf:
        raise GpuliftError(f"{place}: {low} to {high} is no range above 0 from low to high")
    if remark not in ("", IN_WORDS, WITHDRAWN) and not remark.startswith(AFTER):
        raise GpuliftError(f"{place}: {remark!r} is no remark that a line may have")
    return Line(since, technique, case, on, arm, over, *ends, remark)


def ends_of(lines: Sequence[Line]) -> Mapping[Line, str]:
    """Since when a line does not stand any more: of those that a later one replaces."""
    newest: dict[Subject, Line] = {}
    ends: dict[Line, str] = {}
    for line in lines:
        if line.subject in newest:
            ends[newest[line.subject]] = line.since
        newest[line.subject] = line
    return ends


def standing(lines: Sequence[Line]) -> list[Line]:
    """Those that neither were replaced nor withdrawn."""
    ends = ends_of(lines)
    return [line for line in lines if line not in ends and line.remark != WITHDRAWN]


def told_by(infos: Iterable[TechniqueInfo], since: str = "") -> list[Line]:
    """What techniques' files predict today, as lines."""
    return [_told(info, one, since) for info in infos for one in info.predict]


def _told(info: TechniqueInfo, one: CasePrediction, since: str) -> Line:
    low, high = one.speedup or one.step_time_s or (0.0, 0.0)  # it refuses to have neither
    case = "/".join(f"{axis}:{value}" for axis, value in one.case.items())
    over = info.arms[0] if one.speedup else ""
    return Line(since, info.id, case, one.on, one.arm, over, low, high)


def to_append(
    lines: Sequence[Line],
    told: Sequence[Line],
    records: Iterable[Record],
    today: Today = UNKNOWN,
) -> list[Line]:
    """What the ledger lacks of these lines of files: new ones, and the end of those that files
    have no more. What a record or an earlier range says of it is in its remark."""
    stand = {line.subject: line for line in standing(lines)}
    known = {line.same_range for line in stand.values()}
    asked = {line.subject for line in told}
    new = [line for line in told if line.same_range not in known]
    techniques = {line.technique for line in new}
    measured = [record for record in records if record.technique in techniques]
    since = max((line.since for line in told), default="")
    gone = [line for subject, line in stand.items() if subject not in asked]
    return [
        *(replace(line, since=since, low=0, high=0, remark=WITHDRAWN) for line in gone),
        *(_remarked(line, line.subject in stand, measured, today) for line in new),
    ]


def _remarked(line: Line, changed: bool, records: Sequence[Record], today: Today) -> Line:
    """With the newest record that its author could know: of its machines, or of any machine where
    a range is changed."""
    asked = replace(line, on="") if changed else line
    known = [record for record in records if asked.is_of(record, today)]
    if not known:
        return line
    newest = max(known, key=lambda record: record.began_at)
    return replace(line, remark=f"{AFTER}{newest.citation}")


def append(file: Path, lines: Sequence[Line]) -> None:
    """Adds lines at its end."""
    with file.open("a", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, delimiter="\t", lineterminator="\n")
        writer.writerows(line.cells() for line in lines)
