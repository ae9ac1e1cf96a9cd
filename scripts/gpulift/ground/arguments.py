"""Arguments of several commands: files, times; imports little, since `report` reads early."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from gpulift.ground.errors import USAGE, GpuliftError, write_error
from gpulift.ground.text import visible


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


QUICK = "120s"  # of a --quick without a time
NEAR_A_TIME = re.compile(r"[\d.]+[A-Za-z]*")  # `5min` is refused as a time, and is no filter


def with_default(arguments: Iterable[str]) -> list[str]:
    """The command line, in which a `--quick` without a time has the default; what follows `--`, as
    the command of a job does, is left alone."""
    told: list[str] = []
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    for argument in given[:end]:
        if told and told[-1] == "--quick" and not NEAR_A_TIME.fullmatch(argument):
            told.append(QUICK)
        told.append(argument)
    told += [QUICK] if told and told[-1] == "--quick" else []
    return told + given[end:]


def require_above_0(option: str, value: float) -> None:
    """Raises GpuliftError for what is none; nor is infinity, which no JSON can say."""
    if not 0 < value < math.inf:
        raise GpuliftError(f"{option} must be more than 0 and finite, not {value}")


RESULTS_HELP = "Record files, run folders or folders above."
Results = Annotated[list[Path], typer.Argument(parser=named, metavar="RESULTS", help=RESULTS_HELP)]
Wide = Annotated[
    bool, typer.Option("--wide", help="All columns of tables, on lines longer than the terminal's.")
]
Filter = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="REGEX",
        help='Only what matches in technique/case/arm, a regular expression; "-RE" leaves it out.',
    ),
]
Forms = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="FORM[=FILE]",
        help="lines, json, markdown, github (workflow commands), junit or bmf (Bencher), on stdout"
        " or into a file; may be repeated.",
    ),
]
Explained = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="CASE",
        help="From windows to verdict; CASE is a part of technique/case/arm.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
SomeResults = Annotated[
    list[Path] | None, typer.Argument(parser=named, metavar="RESULTS", help=RESULTS_HELP)
]
PRICE_HELP = (
    "USD an hour of one GPU with its share of the host (without a GPU, of the machine);"
    " MODEL=PRICE for one model; may be repeated."
)
Price = Annotated[
    list[str] | None, typer.Option("--usd-per-hour", metavar="[MODEL=]PRICE", help=PRICE_HELP)
]


def one_filter(*given: str | None) -> str | None:
    """That of --filter or of the argument beside it."""
    named = [one for one in given if one is not None]
    if len(named) > 1:
        raise GpuliftError("give one filter; a|b selects both", USAGE)
    return named[0] if named else None


def require_free(out: Path, force: bool | None, beginning: bytes = b"") -> None:
    """Raises GpuliftError where `out` is a folder or in none, or a file that would be written over.

    `force` is None where the command has no such option. A file with the `beginning` of what is
    written there is ours, from an earlier call.
    """
    try:
        if not out.parent.is_dir():
            raise GpuliftError(f"{visible(str(out))}: cannot be written: there is no such folder")
        if out.is_dir():
            raise GpuliftError(f"{visible(str(out))}: is a folder; name a file")
        if out.is_file() and not force and not (beginning and _begins(out, beginning)):
            remedy = "name another file" if force is None else "--force writes over it"
            raise GpuliftError(f"{visible(str(out))}: is there already; {remedy}")
    except OSError as error:  # a name that is too long, or a folder that may not be read
        raise write_error(out, error) from None


def require_distinct(files: Mapping[str, Path | None]) -> None:
    """Raises GpuliftError where two options name one file."""
    options: dict[Path, str] = {}
    for option, file in files.items():
        if file is not None and (other := options.setdefault(file.resolve(), option)) != option:
            raise GpuliftError(
                f"{option} {visible(str(file))}: is what {other} names; name another"
            )


def _begins(file: Path, beginning: bytes) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(beginning)) == beginning
