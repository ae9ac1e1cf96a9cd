"""From which change on a row counts as changed, by a TOML file of the user:

    [rows."transfer/.*"]
    least_change = 0.05

The name is a regular expression on technique/case/arm, as a filter is; of several that match a row
the last one counts. Changes are fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Optional

import typer

from gpulift import machine, toml
from gpulift.arguments import named
from gpulift.errors import GpuliftError
from gpulift.records.fields import Fields

KEY = "least_change"
Names = tuple[str, ...]  # of a row: its technique's, its case's and its own, as a filter sees them

# typer reads this annotation at run time; Optional keeps it readable on Python 3.10.
ThresholdsFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--thresholds",
        parser=named,
        metavar="FILE",
        help='TOML: under [rows."REGEX"], least_change = 0.05 calls no smaller change of these'
        " rows one.",
    ),
]


def read(file: Path | None) -> dict[str, float]:
    """The least change of each pattern, in their order; raises GpuliftError for any other file."""
    if file is None:
        return {}
    fields = Fields(toml.parsed(file), file.name)
    _only(fields, "rows")
    rows = fields.child("rows")
    found = {pattern: _least(rows.child(pattern)) for pattern in rows.values}
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


def _least(fields: Fields) -> float:
    _only(fields, KEY)
    value = fields.number(KEY)
    if not 0 < value < 1:
        raise fields.error(KEY, f"must be a fraction above 0 and below 1, not {value:g}")
    return value


def _only(fields: Fields, key: str) -> None:
    other = next((name for name in fields.values if name != key), None)
    if other is not None:
        raise fields.error(other, f"is not known here; known is {key}")
