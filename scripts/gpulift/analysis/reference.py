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

from gpulift.errors import GpuliftError
from gpulift.records.fields import Fields
from gpulift.records.read import parse_line

SCHEMA = "1.3"
READABLE = ("1.0", "1.1", "1.2", SCHEMA)
KINDS = ("datasheet", "measured", "published")
VARIES = "varies"  # where the tolerance would be so large that it told nothing
TOLERANCES_FROM = ("cards", "default", VARIES)
# Short: the mean of tens to hundreds of repetitions, too few to tell that the clock has settled.
REGIMES = ("burst", "short", "sustained")
UNITS = ("B/s", "FLOP/s", "OP/s", "s", "W")
DOCUMENT_KEYS = frozenset({"schema", "name", "date_means", "entries"})
FOLDER = "reference"  # below results
PEAK_KEYS = frozenset({"kind", "roof", "value", "unit", "meaning", "source", "date"})
PUBLISHED_KEYS = PEAK_KEYS | {"check", "conditions", "operation", "regime", "operands"}
MEASURED_KEYS = frozenset(
    {"kind", "check", "value", "unit", "tolerance", "tolerance_from", "cards", "launches"}
    | {"conditions", "source", "date"}
)
CONDITION_KEYS = frozenset({"driver", "cuda_runtime", "power_limit_w", "method", "commit", "host"})


@dataclass(frozen=True)
class Peak:
    """One figure of a datasheet, in base SI units."""

    roof: str
    value: float
    unit: str
    meaning: str
    source: str
    date: str


@dataclass(frozen=True)
class Conditions:
    """With what a measured entry was measured; several drivers or commits are joined by semicolons.

    `host` (the processor and its cores) is what figures on the host's clock depend on.
    """

    method: str
    driver: str = ""
    cuda_runtime: str = ""
    power_limit_w: float | None = None
    commit: str = ""
    host: str = ""


@dataclass(frozen=True)
class Measured:
    """What cards of this model reached in one check, and how far below it a sound card may be.

    Where sound machines differ by more than the `tolerance`, it informs and judges none.
    """

    check: str
    value: float
    unit: str
    tolerance: float
    tolerance_from: str
    cards: int
    launches: int
    conditions: Conditions
    source: str
    date: str

    @property
    def judges(self) -> bool:
        """Whether a machine can fail it."""
        return self.tolerance_from != VARIES


@dataclass(frozen=True)
class Published:
    """A figure that others report, for a roof or for a check.

    What was done, with what data, and for how long: figures of one card differ by half between
    these. Files below schema 1.3 do not tell them.
    """

    value: float
    unit: str
    meaning: str
    conditions: str
    source: str
    date: str
    roof: str = ""
    check: str = ""
    operation: str = ""
    regime: str = ""
    operands: str = ""

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
    try:
        data = file.read_bytes()
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None
    fields = Fields(parse_line(data, str(file)), str(file))
    schema = fields.text("schema", READABLE[0])
    if schema not in READABLE:
        readable = ", ".join(READABLE)
        raise fields.error("schema", f"is {schema}, but this gpulift reads {readable}")
    _only(fields, DOCUMENT_KEYS)
    entries = [(_kind(entry, schema), entry) for entry in fields.children("entries")]
    peaks = [_peak(entry) for kind, entry in entries if kind == "datasheet"]
    measured = [_measured(entry) for kind, entry in entries if kind == "measured"]
    published = [_published(entry) for kind, entry in entries if kind == "published"]
    _require_unique(fields, [peak.roof for peak in peaks])
    _require_unique(fields, [entry.check for entry in measured])
    _require_unique(fields, [f"{p.subject} ({p.told}; {p.source})" for p in published])
    return Reference(
        name=fields.text("name"),
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


def _kind(entry: Fields, schema: str) -> str:
    """Files of 1.0 hold datasheets only and name no kind."""
    kind = entry.text("kind", "datasheet" if schema == READABLE[0] else None)
    if kind not in KINDS:
        raise entry.error("kind", f"must be one of {', '.join(KINDS)}, not {kind!r}")
    if schema != READABLE[0] and not _is_day(entry.text("date")):
        raise entry.error("date", "must be a day, YYYY-MM-DD")
    return kind


def _is_day(text: str) -> bool:
    try:
        return day.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _unit(fields: Fields) -> str:
    unit = _filled(fields, "unit")
    if unit not in UNITS:
        raise fields.error("unit", f"must be one of {', '.join(UNITS)}, not {unit!r}")
    return unit


def _peak(fields: Fields) -> Peak:
    _only(fields, PEAK_KEYS)
    return Peak(
        roof=_filled(fields, "roof"),
        value=_positive(fields, "value"),
        unit=_unit(fields),
        meaning=fields.text("meaning"),
        source=_filled(fields, "source"),
        date=_filled(fields, "date"),
    )


def _measured(fields: Fields) -> Measured:
    _only(fields, MEASURED_KEYS)
    tolerance = fields.number("tolerance")
    if not 0 <= tolerance < 1:
        raise fields.error("tolerance", "must be a fraction from 0 to below 1")
    tolerance_from = fields.text("tolerance_from")
    if tolerance_from not in TOLERANCES_FROM:
        raise fields.error("tolerance_from", f"must be one of {', '.join(TOLERANCES_FROM)}")
    return Measured(
        check=_filled(fields, "check"),
        value=_positive(fields, "value"),
        unit=_unit(fields),
        tolerance=tolerance,
        tolerance_from=tolerance_from,
        cards=_count(fields, "cards"),
        launches=_count(fields, "launches"),
        conditions=_conditions(fields.child("conditions")),
        source=_filled(fields, "source"),
        date=_filled(fields, "date"),
    )


def _conditions(fields: Fields) -> Conditions:
    _only(fields, CONDITION_KEYS)
    return Conditions(
        method=_filled(fields, "method"),
        driver=fields.text("driver", ""),
        cuda_runtime=fields.text("cuda_runtime", ""),
        power_limit_w=fields.maybe_number("power_limit_w"),
        commit=fields.text("commit", ""),
        host=fields.text("host", ""),
    )


def _published(fields: Fields) -> Published:
    _only(fields, PUBLISHED_KEYS)
    if fields.has("roof") == fields.has("check"):
        raise fields.error("roof", "or check must be there, and not both")
    return Published(
        value=_positive(fields, "value"),
        unit=_unit(fields),
        meaning=_filled(fields, "meaning"),
        conditions=_filled(fields, "conditions"),
        source=_filled(fields, "source"),
        date=_filled(fields, "date"),
        roof=fields.text("roof", ""),
        check=fields.text("check", ""),
        operation=fields.text("operation", ""),
        regime=_regime(fields),
        operands=fields.text("operands", ""),
    )


def _regime(fields: Fields) -> str:
    regime = fields.text("regime", "")
    if regime and regime not in REGIMES:
        raise fields.error("regime", f"must be one of {', '.join(REGIMES)}, not {regime!r}")
    return regime


def _only(fields: Fields, known: frozenset[str]) -> None:
    for key in fields.values:
        if key not in known:
            raise fields.error(key, "is not known here")


def _filled(fields: Fields, key: str) -> str:
    text = fields.text(key)
    if not text:
        raise fields.error(key, "must not be empty")
    return text


def _positive(fields: Fields, key: str) -> float:
    value = fields.number(key)
    if value <= 0:
        raise fields.error(key, "must be positive")
    return value


def _count(fields: Fields, key: str) -> int:
    value = fields.whole(key)
    if value < 1:
        raise fields.error(key, "must be at least 1")
    return value


def _require_unique(fields: Fields, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise fields.error("entries", f"names {', '.join(twice)} more than once")
