"""How pages of results/ are written that are made from committed records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError
from gpulift.ground.whole import write_whole


def write_page(name: str, made: Callable[[Path], str]) -> None:
    """Writes what is made from the folder of results; what is wrong with it ends in one line."""
    results = machine.checkout_root() / "results"
    try:
        write_whole(made(results), results / name)
    except GpuliftError as error:
        raise SystemExit(str(error)) from None
    print(results / name)
