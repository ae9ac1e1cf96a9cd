"""What is known to be wrong in committed records: `results/errata.toml`, and ERRATA.md made of it.

`python -m tools.errata_page` writes ERRATA.md anew; a test fails where it is stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from gpulift.ground import toml
from gpulift.ground.errors import PATTERN_ERRORS, GpuliftError
from gpulift.records.decode import converted
from gpulift.records.model import Arm, Record
from gpulift.records.values import Integer, Maybe, Text

FILE = "errata.toml"
TEXTS = ("short", "records", "wrong", "later")
PATTERNS = ("techniques", "cases", "arms")
ALLOCATED = "peak_allocated_bytes"


@dataclass(frozen=True)
class Erratum:
    """An error, and the records that have it: those that meet every condition.

    It keeps its `number`, by which it is cited, when others come or go.
    `runs` are patterns of <machine>/<run>; `before` is a time in ISO 8601, or its beginning, before
    which the case began; techniques, cases and arms are regular expressions, an empty one
    is of all, and `arms` of any arm; of `metrics` any arm has one, or what it names of these:
    cpu_s, energy_j (of windows), roof (of a cost), check_error; `launch` counts from 0. `short`
    says it in half a sentence, the other texts are the columns of the table. Where it does not
    `leads`, times hold, but what they are held against makes the ratios larger than what they are
    taken for: they stand in tables, and neither on a first screen, in README nor in a citation.
    Where `memory_holds`, that is so of times alone.
    Where it `hides`, its metrics, or the check's error, are left out where cases are chosen to be
    shown (`analysis.choice`); neither the record itself nor what claims ask is without them.
    What is `mended` in reading stands in the table alone: no reader sees it in a record.
    """

    short: Text
    records: Text
    wrong: Text
    later: Text
    runs: Annotated[tuple[str, ...], Meta(min_length=1)]
    before: str = ""
    techniques: str = ""
    cases: str = ""
    arms: str = ""
    metrics: tuple[str, ...] = ()
    launch: Maybe[Integer] = None
    leads: bool = True
    memory_holds: bool = False
    hides: bool = False
    mended: bool = False
    number: Integer = 0

    def __post_init__(self) -> None:
        for key in TEXTS:
            if re.search(r"[|\n]", getattr(self, key)):
                raise ValueError(f"{key} must be one line without |: it is a cell of a table")
        for key in PATTERNS:
            try:
                re.compile(getattr(self, key))
            except PATTERN_ERRORS as error:
                raise ValueError(f"{key} is no regular expression: {error}") from None

    @property
    def name(self) -> str:
        """By which it is cited."""
        return f"E{self.number}"

    @property
    def of_times(self) -> bool:
        """Whether times are in doubt: what names metrics is about these alone."""
        return not self.metrics

    def concerns(self, arms: Iterable[str]) -> bool:
        """Whether it is about any of these arms of its records."""
        return any(re.search(self.arms, arm) for arm in arms)

    def withholds(self, arms: Iterable[str]) -> bool:
        """Whether it keeps the ratio of these arms of its records from leading."""
        return not self.leads and self.concerns(arms)

    def is_of(self, record: Record) -> bool:
        """Whether the record has this error."""
        run = f"{record.context.slug}/{record.file.parent.name}"
        return (
            _is_any_of(run, self.runs)
            and (not self.before or record.began_at < self.before)
            and bool(re.search(self.techniques, record.technique))
            and bool(re.search(self.cases, record.case_id))
            and any(re.search(self.arms, name) for name in _arms(record))
            and (not self.metrics or self.hides or self._has_metric(record))
            and self.launch in (None, record.launch)
        )

    def _has_metric(self, record: Record) -> bool:
        had = (name for arm in record.arms for name in (*arm.metrics, *_told(arm)))
        return any(name in self.metrics for name in had)


@lru_cache(maxsize=4096)  # all records of a run are asked about all errata
def _is_any_of(run: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(run, one) for one in patterns)


def _arms(record: Record) -> Iterator[str]:
    yield record.duet_arm
    yield from (arm.name for arm in record.arms)


def _told(arm: Arm) -> Iterator[str]:
    if len(arm.windows.cpu_s):
        yield "cpu_s"
    if arm.windows.energy_j:
        yield "energy_j"
    if arm.cost and arm.cost.roof:
        yield "roof"
    if arm.check_error is not None:
        yield "check_error"


def read_errata(file: Path) -> tuple[Erratum, ...]:
    """All of a file, newest first, each with a number of its own; none where there is no such file.
    Throws GpuliftError, with the field, for anything else."""
    if not file.is_file():
        return ()
    entries = toml.parsed(file).get("errata", [])
    made = converted(entries, tuple[Erratum, ...], file.name, "errata", closed=True)
    numbers = [one.number for one in made]
    for one in numbers:
        if one < 1 or numbers.count(one) > 1:
            raise GpuliftError(f"{file.name}: number {one} must be one entry's own, from 1 on")
    return made


def errata_of(record: Record, errata: Iterable[Erratum]) -> tuple[Erratum, ...]:
    """Those that the record has, and that reading does not mend."""
    return tuple(one for one in errata if not one.mended and one.is_of(record))


def without_wrong(record: Record, errata: Iterable[Erratum]) -> Record:
    """The record, its arms without what errata hide; the peak of a framework is the arm's, too."""
    named = [one for one in errata_of(record, errata) if one.hides]
    if not named:
        return record
    return replace(record, arms=tuple(_without(arm, named) for arm in record.arms))


def _without(arm: Arm, errata: Iterable[Erratum]) -> Arm:
    wrong = {name for one in errata if one.concerns([arm.name]) for name in one.metrics}
    metrics = {name: value for name, value in arm.metrics.items() if name not in wrong}
    peak = None if ALLOCATED in arm.metrics.keys() & wrong else arm.peak_device_bytes
    apart = None if "check_error" in wrong else arm.check_error
    return replace(arm, metrics=metrics, peak_device_bytes=peak, check_error=apart)


def known_errors(records: Iterable[Record], errata: Sequence[Erratum]) -> list[Erratum]:
    """Those that any of the records has."""
    return list(dict.fromkeys(one for record in records for one in errata_of(record, errata)))
