"""Datasheet peaks of known GPUs: `results/reference/<gpu>.json`, with source and date per entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpulift.errors import GpuliftError
from gpulift.fields import Fields
from gpulift.records import parse_line


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
class Reference:
    """The datasheet of one GPU model."""

    name: str
    peaks: Mapping[str, Peak]

    def peak(self, roof: str) -> float | None:
        """The datasheet's figure for a roof, or None where it has none."""
        return self.peaks[roof].value if roof in self.peaks else None

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the figures are from, each source once."""
        return tuple(dict.fromkeys(f"{p.source} ({p.date})" for p in self.peaks.values()))


def read_reference(file: Path) -> Reference:
    """Reads one datasheet file."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None
    fields = Fields(parse_line(data, str(file)), str(file))
    peaks = [_peak(entry) for entry in fields.children("entries")]
    roofs = [peak.roof for peak in peaks]
    twice = {roof for roof in roofs if roofs.count(roof) > 1}
    if twice:
        raise fields.error("entries", f"names {', '.join(sorted(twice))} more than once")
    return Reference(fields.text("name"), {peak.roof: peak for peak in peaks})


def find_reference(results: Path, slug: str) -> Reference | None:
    """The datasheet of a machine under a results folder, or None where none is known."""
    file = results / "reference" / f"{slug}.json"
    return read_reference(file) if file.is_file() else None


def _peak(fields: Fields) -> Peak:
    value = fields.number("value")
    if value <= 0:
        raise fields.error("value", "must be positive")
    return Peak(
        roof=fields.text("roof"),
        value=value,
        unit=fields.text("unit"),
        meaning=fields.text("meaning"),
        source=fields.text("source"),
        date=fields.text("date"),
    )
