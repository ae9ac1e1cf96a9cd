"""A run of somebody's command: it ends when its own process does, whatever that leaves behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from gpulift.ground.programs import KILLED_WITHIN_S

PROC = Path("/proc")
ADOPTING = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
NOBODYS = -1  # a session; 0 is that of the kernel


@dataclass(frozen=True)
class Ended:
    """How a run ended, what it wrote, how long it took, and by name the processes it left."""

    code: int
    printed: bytes
    errors: bytes
    seconds: float
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Process:
    """A process, as /proc tells of it."""

    pid: int
    name: str
    parent: int
    session: int


def run_to_end(
    command: Sequence[str],
    limit_s: float,
    folder: Path,
    environment: Mapping[str, str],
    *,
    alone: bool = False,
) -> Ended:
    """Its outputs go to files, since a pipe ends with the last process that has it. `alone` ends
    what it leaves behind. Throws subprocess.TimeoutExpired after the limit, and ends it all."""
    before = {one.pid for one in _ours()}
    with TemporaryFile() as said, TemporaryFile() as errors, _adopting():
        started_s, session = time.monotonic(), NOBODYS
        left: list[str] = []
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
            session = process.pid
            seconds = _wait(process, limit_s) - started_s
        except BaseException:
            alone = True
            raise
        finally:
            if alone:
                left = _end(session, before)
        for file in (said, errors):
            file.seek(0)
        return Ended(process.returncode, said.read(), errors.read(), seconds, tuple(left))


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> float:
    """When it ended. With a limit Popen.wait looks every 50 ms alone, so that a thread waits."""
    ended_s: list[float] = []

    def wait() -> None:
        process.wait()
        ended_s.append(time.monotonic())

    waiting = threading.Thread(target=wait, daemon=True)  # a driver may hold what is killed
    waiting.start()
    waiting.join(min(limit_s, threading.TIMEOUT_MAX))
    if not ended_s:
        raise subprocess.TimeoutExpired(process.args, limit_s)
    return ended_s[0]


@contextmanager
def _adopting() -> Iterator[None]:
    """What a run leaves becomes a child of ours meanwhile, and not of the machine's first process:
    so it is known whose it is."""
    prctl = ctypes.CDLL(None).prctl
    prctl(ADOPTING, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(ADOPTING, 0, 0, 0, 0)


def _end(session: int, before: set[int]) -> list[str]:
    """Kills what a run has left, and what that starts meanwhile; returns their names."""
    names: dict[int, str] = {}
    until_s = time.monotonic() + KILLED_WITHIN_S
    while left := [one for one in _ours(session) if one.pid not in before]:
        for one in left:
            names.setdefault(one.pid, one.name)
            with suppress(OSError):
                os.kill(one.pid, signal.SIGKILL)
        for one in left:
            with suppress(OSError):  # who is no child of ours is reaped by its parent
                os.waitpid(one.pid, os.WNOHANG)
        if time.monotonic() > until_s:
            break
    return [name for pid, name in names.items() if pid != session and name]


def _ours(session: int = NOBODYS) -> list[_Process]:
    """Our descendants, and all of a session."""
    every = [one for file in PROC.glob("[0-9]*/stat") if (one := _read(file))]
    found = {os.getpid()}
    grown = True
    while grown:
        more = {one.pid for one in every if one.parent in found or one.session == session} - found
        found |= more
        grown = bool(more)
    return [one for one in every if one.pid in found and one.pid != os.getpid()]


def _read(file: Path) -> _Process | None:
    """None where it has just ended."""
    try:
        told = file.read_text("utf-8", "replace")
    except OSError:
        return None
    start, _, rest = told.rpartition(")")
    pid, _, name = start.partition(" (")
    words = rest.split()
    # One that has ended and waits for its parent is no process that was left.
    return _Process(int(pid), "" if words[0] == "Z" else name, int(words[1]), int(words[3]))
