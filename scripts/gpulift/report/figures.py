"""Figures: drawn and written as files by other processes, while this one makes the page.

The page has a mark where each figure belongs, which gives way to it in the end.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from markupsafe import Markup

from gpulift import processes
from gpulift.errors import FAILED, GpuliftError
from gpulift.report.drawing import Drawing

NAME_LETTERS = 80
MOST_PROCESSES = 3  # beside the one that makes the page
LESS_URGENT = 10  # than the page, which one process makes and which is nearly as much work
MADE = ".made-by-report"  # names of the files that a report made, to remove when it makes others


@dataclass(frozen=True)
class Figure:
    """A figure on the page: the name of its files, the text that stands for it, its mark."""

    name: str
    alt: str
    svg: Markup


class Figures:
    """The figures of a page, by their names, while they are being drawn."""

    def __init__(self, drawings: Sequence[Drawing], answers: Sequence[Connection]) -> None:
        secret = secrets.token_hex(16)  # so that nothing in a record is taken for a mark
        self.by_name = {
            one.name: Figure(one.name, one.alt, Markup(f"<!--{secret} {number}-->"))
            for number, one in enumerate(drawings)
        }
        self._names = [*self.by_name]
        self._mark = re.compile(rf"<!--{secret} (\d+)-->")
        self._answers = answers

    def put_on(self, page: str) -> str:
        """The page with inline SVG for its marks. Waits until all are drawn."""
        svgs: dict[str, str] = {}
        for answer in self._answers:
            try:
                found = answer.recv()
            except EOFError:
                raise _ended() from None
            if isinstance(found, Exception):
                raise found
            svgs |= found
        return self._mark.sub(lambda mark: svgs[self._names[int(mark[1])]], page)


@contextmanager
def drawn(drawings: Sequence[Drawing], folder: Path) -> Iterator[Figures]:
    """Has them drawn by other processes, while the caller makes the page.

    Each becomes an SVG and a PNG file in the folder. `put_on` waits until all are there, and raises
    OSError where they cannot be written. The processes are forked: what the drawings need is there
    already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    names = [f"{file_name(one.name)}.{end}" for one in drawings for end in ("png", "svg")]
    (folder / MADE).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    count = min(MOST_PROCESSES, len(os.sched_getaffinity(0)), len(drawings))
    queue = processes.queue(len(drawings))
    started = [processes.start(_work, drawings, queue, folder) for _ in range(count)]
    os.close(queue)
    try:
        yield Figures(drawings, [answer for _, answer in started])
    finally:
        for process, answer in started:
            answer.close()
            process.join()


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


def _ended() -> GpuliftError:
    return GpuliftError(
        "a process that draws figures ended early, as when memory runs out; call again", FAILED
    )


def _work(drawings: Sequence[Drawing], queue: int, folder: Path, sender: Connection) -> None:
    """Draws what it takes from the queue, and says what, by name, or what went wrong.

    A figure's files are written with it. Were they left until the end, then a process that drew
    much would write while others have nothing to do.
    """
    os.nice(LESS_URGENT)
    svgs: dict[str, str] = {}
    try:
        for one in (drawings[number] for number in processes.taken(queue)):
            if one.inline:
                svgs[one.name] = str(one.svg)
            one.write_svg(folder / f"{file_name(one.name)}.svg")
            one.write_png(folder / f"{file_name(one.name)}.png")
        sender.send(svgs)
    except BrokenPipeError:  # the page could not be written: nobody waits for figures
        return
    except Exception as error:  # whatever it is, it belongs to the process that makes the page
        sender.send(error)
