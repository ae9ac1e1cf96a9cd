"""What is known of GPU models: `results/reference/<gpu>.json`, with source and date per entry.

An entry is one of three kinds. "datasheet": a peak that the maker gives. "measured": what cards of
the model reached, by check, with the tolerance that a card is judged by. "published": what others
report, which informs and never fails a machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date as day
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from gpulift.ground.errors import RecordError
from gpulift.ground.whole import read_whole
from gpulift.records.decode import converted, parse_line
from gpulift.records.values import Count, Maybe, Number, Positive, Text, among

SCHEMA = "1.3"
DATASHEET = "datasheet"
VARIES = "varies"  # where the tolerance would be so large that it told nothing
TOLERANCES_FROM = ("cards", "default", VARIES)
# Short: the mean of tens to hundreds of repetitions, too few to tell that the clock has settled.
REGIMES = ("burst", "short", "sustained")
UNITS = ("B/s", "FLOP/s", "OP/s", "s", "W")
FOLDER = "reference"  # below results
Unit = Annotated[str, among(*UNITS)]


@dataclass(frozen=True)
class Peak:
    """One figure of a datasheet, in base SI units."""

    roof: Text
    value: Positive
    unit: Unit
    meaning: str
    source: Text
    date: Text


@dataclass(frozen=True)
class Conditions:
    """With what a measured entry was measured; several drivers or commits are joined by semicolons.

    `host` (the processor and its cores) is what figures on the host's clock depend on.
    """

    method: Text
    driver: str = ""
    cuda_runtime: str = ""
    power_limit_w: Maybe[Number] = None
    commit: str = ""
    host: str = ""


@dataclass(frozen=True)
class Measured:
    """What cards of this model reached in one check, and how far below it a sound card may be.

    Where sound machines differ by more than the `tolerance`, it informs and judges none.
    """

    check: Text
    value: Positive
    unit: Unit
    tolerance: Annotated[float, Meta(ge=0, lt=1)]
    tolerance_from: Annotated[str, among(*TOLERANCES_FROM)]
    cards: Count
    launches: Count
    conditions: Conditions
    source: Text
    date: Text

    @property
    def judges(self) -> bool:
        """Whether a machine can fail it."""
        return self.tolerance_from != VARIES


@dataclass(frozen=True)
class Published:
    """A figure that others report, for a roof or for a check.

    What was done, with what data, and for how long: figures of one card differ by half between
    these.
    """

    value: Positive
    unit: Unit
    meaning: Text
    conditions: Text
    source: Text
    date: Text
    roof: str = ""
    check: str = ""
    operation: str = ""
    regime: Annotated[str, among("", *REGIMES)] = ""
    operands: str = ""

    def __post_init__(self) -> None:
        if bool(self.roof) == bool(self.check):
            raise ValueError("roof or check must be there, and not both")

    @property
    def subject(self) -> str:
        """The roof or the check that it is about."""
        return self.roof or self.check

    @property
    def told(self) -> str:
        """What was done and how, as its source tells it."""
        operands = f"operands {self.operands}" if self.operands else ""
        parts = (self.operation, self.regime, operands, self.meaning, self.conditions)
        return "; ".join(part for part in parts if part)


KINDS: Mapping[str, type[Peak | Measured | Published]] = {
    DATASHEET: Peak,
    "measured": Measured,
    "published": Published,
}


@dataclass(frozen=True)
class Kind:
    """Which of them an entry is."""

    kind: Annotated[str, among(*KINDS)]


@dataclass(frozen=True)
class Document:
    """A file as it is written."""

    name: str
    schema: str
    date_means: Any = None
    entries: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Reference:
    """All entries of one GPU model."""

    name: str
    peaks: Mapping[str, Peak]
    measured: Mapping[str, Measured] = field(default_factory=dict)
    published: tuple[Published, ...] = ()

    def peak(self, roof: str) -> float | None:
        """The datasheet's figure for a roof, or None where it has none."""
        return self.peaks[roof].value if roof in self.peaks else None

    def holding(self, part: str) -> Reference:
        """The entries whose check or roof holds this text, in whatever case."""
        wanted = part.lower()
        return replace(
            self,
            peaks={roof: one for roof, one in self.peaks.items() if wanted in roof.lower()},
            measured={id: one for id, one in self.measured.items() if wanted in id.lower()},
            published=tuple(one for one in self.published if wanted in one.subject.lower()),
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the datasheet's figures are from, each source once."""
        return tuple(dict.fromkeys(f"{p.source} ({p.date})" for p in self.peaks.values()))


def read_reference(file: Path) -> Reference:
    """Reads a reference file; what is wrong in it is named with file, entry and field."""
    raw = parse_line(read_whole(file), str(file))
    if raw.get("schema") != SCHEMA:
        schema = raw.get("schema")
        raise RecordError(f"{file}: schema is {schema}, but this gpulift reads {SCHEMA}")
    document = converted(raw, Document, str(file), closed=True)
    held: dict[type, list[Any]] = {kind: [] for kind in KINDS.values()}
    for index, entry in enumerate(document.entries):
        one = _entry(entry, f"{file}", f"entries[{index}]")
        held[type(one)].append(one)
    peaks, measured, published = held.values()
    _require_unique(file, [peak.roof for peak in peaks])
    _require_unique(file, [entry.check for entry in measured])
    _require_unique(file, [f"{p.subject} ({p.told}; {p.source})" for p in published])
    return Reference(
        name=document.name,
        peaks={peak.roof: peak for peak in peaks},
        measured={entry.check: entry for entry in measured},
        published=tuple(published),
    )


def find_reference(results: Path, slug: str) -> Reference | None:
    """The reference of a machine under a results folder, or None where none is known."""
    file = results / FOLDER / f"{slug}.json"
    try:
        known, stat = file.is_file(), file.stat()
    except OSError:  # not there, or a name that is too long for a file
        return None
    return _read_once(file, stat.st_mtime_ns, stat.st_size) if known else None


@lru_cache
def _read_once(file: Path, changed_ns: int, size: int) -> Reference:
    """A report asks for the same file for each run of its machine."""
    return read_reference(file)


def _entry(entry: Mapping[str, Any], file: str, key: str) -> Peak | Measured | Published:
    kind = converted(entry, Kind, file, key).kind
    told = {name: value for name, value in entry.items() if name != "kind"}
    made = converted(told, KINDS[kind], file, key, closed=True)
    if not _is_day(made.date):
        raise RecordError(f"{file}: {key}.date must be a day, YYYY-MM-DD")
    return made


def _is_day(text: str) -> bool:
    try:
        return day.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _require_unique(file: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RecordError(f"{file}: entries names {', '.join(twice)} more than once")
