"""Figures of a report: written as files, and as SVG for the page."""

from __future__ import annotations

import gc
import os
import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal

from markupsafe import Markup

from gpulift.ground.whole import write_whole
from gpulift.report.drawing import Drawing

NAME_LETTERS = 80
ENDS = ("html", "png", "svg")  # of files that a report makes in a folder of its own
MADE = ".made-by-report"  # names of the files that a report made, to remove when it makes others


@dataclass(frozen=True)
class Figure:
    """A figure on the page: the name of its files, the text that stands for it, its SVG."""

    name: str
    alt: str
    svg: Markup


def drawn(drawings: Sequence[Drawing], folder: Path, png: bool = False) -> dict[str, Figure]:
    """Each by its name, and as an SVG file in the folder; as a PNG file, too, where that is asked
    for. Raises OSError where these cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = ("png", "svg") if png else ("svg",)
    begin(folder, [f"{file_name(one.name)}.{end}" for one in drawings for end in ends])
    return {figure.name: figure for figure in _written_at_once(drawings, folder, png)}


def _written_at_once(drawings: Sequence[Drawing], folder: Path, png: bool) -> list[Figure]:
    """By as many processes as may run at once, since half of a report's time is that of its
    figures; by this one where one of them is killed, as where memory is short."""
    processes = min(len(drawings), len(os.sched_getaffinity(0)))
    if processes > 1:
        with suppress(BrokenProcessPool), warnings.catch_warnings():
            # What is not drawn yet can only be had from a parent. The threads that Python warns of
            # are those of linear algebra, which ends them ahead of a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            forked = get_context("fork")
            with ProcessPoolExecutor(processes, forked, _begin, (drawings, folder, png)) as pool:
                return list(pool.map(_written_here, range(len(drawings))))
    return [_written(drawing, folder, png) for drawing in drawings]


def _begin(drawings: Sequence[Drawing], folder: Path, png: bool) -> None:
    """In a process of its own, whose parent alone hears Ctrl-C, and ends it."""
    global _given
    _given = drawings, folder, png
    signal(SIGINT, SIG_IGN)
    gc.freeze()  # what is the parent's stays in the memory that both share


_given: tuple[Sequence[Drawing], Path, bool]


def _written_here(number: int) -> Figure:
    drawings, folder, png = _given
    return _written(drawings[number], folder, png)


def begin(folder: Path, names: Sequence[str]) -> None:
    """Removes from a folder what an earlier report made there, and says which files this one makes;
    makes it where it makes any. Raises OSError."""
    clear(folder)
    if names:
        folder.mkdir(exist_ok=True)
    if folder.is_dir():
        write_whole("".join(f"{name}\n" for name in names), folder / MADE, lasting=False)


def _written(drawing: Drawing, folder: Path, png: bool) -> Figure:
    svg = drawing.svg if drawing.inline else Markup("")
    drawing.write_svg(folder / f"{file_name(drawing.name)}.svg")
    if png:
        drawing.write_png(folder / f"{file_name(drawing.name)}.png")
    return Figure(drawing.name, drawing.alt, svg)


def file_name(name: str) -> str:
    """A figure's name without anything that leads to another folder."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", name)[:NAME_LETTERS].strip("-") or "figure"


def are_ours(folder: Path) -> bool:
    """Whether a report was begun here."""
    return (folder / MADE).is_file()


def clear(folder: Path) -> None:
    """Removes what an earlier report says that it made here, and nothing else."""
    made = folder / MADE
    try:
        names = made.read_text(encoding="utf-8").split("\n")
    except (FileNotFoundError, UnicodeDecodeError):  # none, or somebody else's
        return
    for name in names:
        stem, _, end = name.rpartition(".")
        if end in ENDS and stem == file_name(stem):
            (folder / name).unlink(missing_ok=True)
