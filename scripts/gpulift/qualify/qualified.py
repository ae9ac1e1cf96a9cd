"""What a qualification was asked for, and what it found of one card or of several together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpulift.analysis.summary import Summary
from gpulift.qualify.checks import CheckResult
from gpulift.records.model import Context


@dataclass(frozen=True)
class Asked:
    """What the user wants measured."""

    quick_s: float | None
    filter: str | None
    out: Path | None


@dataclass(frozen=True)
class Qualified:
    """One measured card, or several together: the records, their summary, every verdict."""

    folder: Path
    exit_code: int
    summary: Summary
    results: tuple[CheckResult, ...]


def card_of(context: Context) -> str:
    """Short hash of the card; empty where there is none."""
    return context.gpu.card if context.gpu else ""
