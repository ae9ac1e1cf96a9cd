"""Reads many files by several processes at once, where there is enough to read to pay for them.

A process is a new interpreter that runs `main`, not a fork, which would copy the locks of threads
that it does not have. It gets pickled paths on its standard input and gives a pickled
answer for each on its standard output.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpulift.errors import GpuliftError

if TYPE_CHECKING:
    from gpulift.records.read import RecordFile

MOST_PROCESSES = 8  # this one has to unpickle what all of them read
ENOUGH_BYTES = 32_000_000  # a second of reading; to start a process takes a tenth of that
PACKAGES = Path(__file__).resolve().parents[2]
PROGRAM = f"import sys; sys.path.insert(0, sys.argv[1]); from {__name__} import main; main()"


def worth_processes(paths: Sequence[Path]) -> bool:
    """Whether these files are read sooner by several processes."""
    return len(paths) > 1 and _processors() > 1 and sum(map(_bytes, paths)) >= ENOUGH_BYTES


def read_by_processes(paths: Sequence[Path]) -> dict[Path, RecordFile | GpuliftError]:
    """What each file holds, or why it cannot be read; a file whose process was killed is absent."""
    shares: list[list[Path]] = [[] for _ in range(min(_processors(), len(paths)))]
    for path in sorted(paths, key=_bytes, reverse=True):
        min(shares, key=lambda share: sum(map(_bytes, share))).append(path)
    with ThreadPoolExecutor(len(shares)) as threads:
        answers = threads.map(_answers, shares)
        return {path: answer for found in answers for path, answer in found.items()}


@contextmanager
def without_collection(freeze: bool) -> Iterator[None]:
    """For many new objects of which none is garbage: looking for it would take long.

    Frozen, they are not looked at later either.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if freeze:
            gc.freeze()
        if enabled:
            gc.enable()


def _answers(paths: Sequence[Path]) -> Mapping[Path, RecordFile | GpuliftError]:
    found: dict[Path, RecordFile | GpuliftError] = {}
    command = [sys.executable, "-I", "-c", PROGRAM, str(PACKAGES)]
    pipe = subprocess.PIPE
    with (
        suppress(OSError, EOFError, pickle.UnpicklingError),  # it was killed, or cannot be started
        subprocess.Popen(command, stdin=pipe, stdout=pipe) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as asked:
            pickle.dump(list(paths), asked)
        for path in paths:
            found[path] = pickle.load(process.stdout)
    return found


def _processors() -> int:
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # reading it will say why
        return 0


def main() -> None:
    """The other process."""
    from gpulift.records.read import read_file

    gc.disable()
    # An interrupt is told by the process that asked, and so is that it went away.
    with suppress(KeyboardInterrupt, BrokenPipeError), sys.stdout.buffer as out:
        for path in pickle.load(sys.stdin.buffer):
            answer: RecordFile | GpuliftError
            try:
                answer = read_file(path, keep=False)
            except GpuliftError as error:
                answer = error
            pickle.dump(answer, out, pickle.HIGHEST_PROTOCOL)
