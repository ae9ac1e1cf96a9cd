"""Arguments of several commands: files, times; imports little, since `report` reads early."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Optional

import typer

from gpulift.errors import USAGE, GpuliftError


def named(path: str) -> Path:
    """A file or folder; an empty name, as of a variable that is not set, would be the current
    folder."""
    if not path:
        raise GpuliftError("the name of a file or folder is empty", USAGE)
    return Path(path)


TIME = re.compile(r"(\d+(?:\.\d+)?)([smh])")
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


def time_s(option: str, text: str) -> float:
    """Seconds of 90s, 20m or 2h. The error names the option."""
    found = TIME.fullmatch(text)
    if not found or float(found[1]) == 0:
        raise GpuliftError(f"{option} {text}: give a time above 0 such as 90s, 20m or 2h")
    return float(found[1]) * UNITS_S[found[2]]


# typer reads these annotations at run time; Optional keeps them readable on Python 3.10.
RESULTS_HELP = "Record files, run folders or folders above."
Results = Annotated[list[Path], typer.Argument(parser=named, metavar="RESULTS", help=RESULTS_HELP)]
Wide = Annotated[
    bool,
    typer.Option("--wide", help="All columns of tables, on lines longer than the terminal's."),
]
Filter = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="REGEX",
        help='Only the cases of which an arm matches: technique/case/arm; "-RE" excludes.',
    ),
]
SomeResults = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Argument(parser=named, metavar="RESULTS", help=RESULTS_HELP),
]
PRICE_HELP = (
    "USD an hour of one GPU with its share of the host (without a GPU, of the machine);"
    " MODEL=PRICE for one model; may be repeated."
)
Price = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--usd-per-hour", metavar="[MODEL=]PRICE", help=PRICE_HELP),
]
