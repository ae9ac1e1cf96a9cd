"""What a qualification was asked for, and what it found of one card or of several together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpulift.analysis.machine.results import CheckResult
from gpulift.analysis.summary import Summary
from gpulift.records.model import Context
from gpulift.records.together import PART


@dataclass(frozen=True)
class Asked:
    """What the user wants measured."""

    quick_s: float | None
    filter: str | None
    out: Path | None
    verbose: bool = False  # name what there is no time for
    expected_gpus: int | None = None


@dataclass(frozen=True)
class Parts:
    """Where the parts go of several cards: into a folder, or beside it, where results of a model
    are one run to a folder."""

    folder: Path
    beside: bool = False

    def folder_of(self, name: str) -> Path:
        """That of a part."""
        if self.beside:
            return self.folder.with_name(f"{self.folder.name}{PART}{name}")
        return self.folder / name


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
