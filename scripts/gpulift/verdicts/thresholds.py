"""From which change on a row counts as changed, by a TOML file of the user:

    [rows."transfer/.*"]
    least_change = 0.05

The name is a regular expression on technique/case/arm, as a filter is; of several that match a row
the last one counts. Changes are fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gpulift.engine import machine
from gpulift.ground import toml
from gpulift.ground.arguments import named
from gpulift.ground.errors import GpuliftError
from gpulift.records.decode import converted
from gpulift.records.values import Fraction

Names = tuple[str, ...]  # of a row: its technique's, its case's and its own, as a filter sees them

ThresholdsFile = Annotated[
    Path | None,
    typer.Option(
        "--thresholds",
        parser=named,
        metavar="FILE",
        help='TOML: under [rows."REGEX"], least_change = 0.05 calls no smaller change of these'
        " rows one.",
    ),
]


@dataclass(frozen=True)
class Asked:
    """What is asked of the rows of a pattern."""

    least_change: Fraction


@dataclass(frozen=True)
class Document:
    """The file, by pattern."""

    rows: Mapping[str, Asked]


def read(file: Path | None) -> dict[str, float]:
    """The least change of each pattern, in their order; raises GpuliftError for any other file."""
    if file is None:
        return {}
    document = converted(toml.parsed(file), Document, file.name, closed=True)
    found = {pattern: asked.least_change for pattern, asked in document.rows.items()}
    if not found:
        raise GpuliftError(f'{file.name}: names no rows: begin with [rows."REGEX"]')
    for pattern in found:
        if pattern.startswith("-"):
            raise GpuliftError(f"{file.name}: {pattern!r}: name the rows that it is for")
        try:
            machine.matcher(pattern)
        except GpuliftError as error:
            raise GpuliftError(f"{file.name}: {error}") from None
    return found


def of_rows(thresholds: Mapping[str, float], rows: Iterable[Names]) -> dict[str, float]:
    """The least change of each row that a pattern matches, by its own name. Raises GpuliftError for
    a pattern that matches none: its threshold would be lost unseen."""
    found: dict[str, float] = {}
    known = list(rows)
    for pattern, least in thresholds.items():
        matches = machine.matcher(pattern)
        matched = [names[-1] for names in known if matches(*names)]
        if not matched:
            raise GpuliftError(f"--thresholds: {pattern!r} matches no row; mend it or leave it out")
        found |= dict.fromkeys(matched, least)
    return found
