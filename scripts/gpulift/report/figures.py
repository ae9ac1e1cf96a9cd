"""Figures: drawn and written as files by other processes, while this one makes the page.

The page has a mark where each figure belongs, which gives way to it in the end.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from markupsafe import Markup

from gpulift import processes
from gpulift.errors import FAILED, GpuliftError
from gpulift.report.drawing import Drawing

NAME_LETTERS = 80
MOST_PROCESSES = 2  # beside the one that makes the page
LESS_URGENT = 10  # than the page, which one process makes and which is nearly as much work
MADE = ".made-by-report"  # names of the files that a report made, to remove when it makes others
ERRNO_FROM = 100  # a process's exit code less this is the errno that it met


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

    On leaving, each is an SVG and a PNG file in the folder. Raises OSError where they cannot be
    written. The processes are forked: what the drawings need is there already. Those that are no
    part of the page are left to whoever is done first: this process, once the page is made, or one
    of the others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    names = [f"{file_name(one.name)}.{end}" for one in drawings for end in ("png", "svg")]
    (folder / MADE).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    count = min(MOST_PROCESSES, len(os.sched_getaffinity(0)), len(drawings))
    inline = [one for one in drawings if one.inline]
    rest = [one for one in drawings if not one.inline]
    queue, later = (processes.queue(len(some)) for some in (inline, rest))
    work = (inline, queue, rest, later, folder)
    started = [processes.start(_work, *work) for _ in range(count)]
    os.close(queue)
    try:
        yield Figures(drawings, [answer for _, answer in started])
        _write((rest[number] for number in processes.taken(later)), folder)
    finally:
        os.close(later)
        for process, answer in started:
            answer.close()
            process.join()
    for code in (process.exitcode for process, _ in started):
        if code and code >= ERRNO_FROM:
            raise OSError(code - ERRNO_FROM, os.strerror(code - ERRNO_FROM), str(folder))
        if code:
            raise _ended()


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


def _work(
    inline: Sequence[Drawing],
    queue: int,
    rest: Sequence[Drawing],
    later: int,
    folder: Path,
    sender: Connection,
) -> None:
    """Draws what it takes from the queue, and says what, by name, or what went wrong."""
    os.nice(LESS_URGENT)
    mine: list[Drawing] = []
    try:
        for number in processes.taken(queue):
            mine.append(inline[number])
            mine[-1].svg  # noqa: B018 (drawn, and kept with it)
        sender.send({one.name: str(one.svg) for one in mine})
    except BrokenPipeError:  # the page could not be written: nobody waits for figures
        return
    except Exception as error:  # whatever it is, it belongs to the process that makes the page
        sender.send(error)
        return
    try:
        _write(mine, folder)
        _write((rest[number] for number in processes.taken(later)), folder)
    except OSError as error:
        raise SystemExit(ERRNO_FROM + (error.errno or 0)) from None


def _write(drawings: Iterable[Drawing], folder: Path) -> None:
    for one in drawings:
        one.write_svg(folder / f"{file_name(one.name)}.svg")
        one.write_png(folder / f"{file_name(one.name)}.png")
