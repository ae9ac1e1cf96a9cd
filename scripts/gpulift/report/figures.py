"""Figures: drawn and written as files by a second process, while this one makes the page."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from markupsafe import Markup

from gpulift.errors import FAILED, GpuliftError
from gpulift.report.drawing import Drawing

NAME_LETTERS = 80
MADE = ".made-by-report"  # names of the files that a report made, to remove when it makes others
ERRNO_FROM = 100  # the second process's exit code less this is the errno that it met

Plan = Callable[[], Drawing | None]


@dataclass(frozen=True)
class Figure:
    """A figure on the page: the name of its files, the text that stands for it, inline SVG."""

    name: str
    alt: str
    svg: Markup


Figures = Mapping[str, Figure]


@contextmanager
def drawn(plans: Sequence[Plan], folder: Path) -> Iterator[Callable[[], Figures]]:
    """Draws what is planned; yields what waits for the figures and returns them by name.

    On leaving, each is an SVG and a PNG file in the folder. Raises OSError where they cannot be
    written. The process is forked: what the plans need is there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_work, args=(plans, folder, receiver, sender))
    process.start()
    sender.close()
    try:
        yield lambda: _received(receiver, folder)
    finally:
        receiver.close()
        process.join()
    code = process.exitcode or 0
    if code >= ERRNO_FROM:
        raise OSError(code - ERRNO_FROM, os.strerror(code - ERRNO_FROM), str(folder))
    if code:
        raise _ended(folder)


def file_name(name: str) -> str:
    """A figure's name without anything that leads to another folder."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", name)[:NAME_LETTERS].strip("-") or "figure"


def clear(folder: Path) -> None:
    """Removes what an earlier report says that it made here, and nothing else."""
    made = folder / MADE
    try:
        names = made.read_text(encoding="utf-8").split("\n")
    except (FileNotFoundError, UnicodeDecodeError):  # none, or somebody else's
        return
    for name in names:
        stem, _, end = name.rpartition(".")
        if end in ("png", "svg") and stem == file_name(stem):
            (folder / name).unlink(missing_ok=True)


def _received(receiver: Connection, folder: Path) -> Figures:
    try:
        found = receiver.recv()
    except EOFError:
        raise _ended(folder) from None
    if isinstance(found, Exception):
        raise found
    return {one.name: one for one in found}


def _ended(folder: Path) -> GpuliftError:
    return GpuliftError(f"{folder}: the process that draws the figures ended early", FAILED)


def _work(plans: Sequence[Plan], folder: Path, receiver: Connection, sender: Connection) -> None:
    receiver.close()
    try:
        drawings = [drawing for plan in plans if (drawing := plan()) is not None]
        sender.send([_figure(one) for one in drawings])
    except BrokenPipeError:  # the page could not be written: nobody waits for figures
        return
    except Exception as error:  # whatever it is, it belongs to the process that makes the page
        sender.send(error)
        return
    try:
        clear(folder)
        names = [f"{file_name(one.name)}.{end}" for one in drawings for end in ("png", "svg")]
        (folder / MADE).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        for one in drawings:
            one.write_svg(folder / f"{file_name(one.name)}.svg")
            one.write_png(folder / f"{file_name(one.name)}.png")
    except OSError as error:
        raise SystemExit(ERRNO_FROM + (error.errno or 0)) from None


def _figure(drawing: Drawing) -> Figure:
    """The layout is made once, for all formats."""
    drawing.figure.draw_without_rendering()
    drawing.figure.set_layout_engine("none")
    return Figure(drawing.name, drawing.alt, drawing.svg)
