"""Arguments that name files, for several commands; imports little, since `report` reads early."""

from __future__ import annotations

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


# typer reads these annotations at run time; Optional keeps them readable on Python 3.10.
RESULTS_HELP = "Record files, run folders or folders above."
Results = Annotated[list[Path], typer.Argument(parser=named, metavar="RESULTS", help=RESULTS_HELP)]
SomeResults = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Argument(parser=named, metavar="RESULTS", help=RESULTS_HELP),
]
