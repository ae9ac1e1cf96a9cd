"""Reads many files by several processes at once, where there is enough to read to pay for them.

They are started before this one has any thread.
"""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from gpulift import processes
from gpulift.errors import GpuliftError

if TYPE_CHECKING:
    from gpulift.records.read import RecordFile

MOST_PROCESSES = 8  # this one has to unpickle what all of them read
ENOUGH_BYTES = 32_000_000  # half a second of reading


def worth_processes(paths: Sequence[Path]) -> bool:
    """Whether these files are read sooner by several processes."""
    return len(paths) > 1 and _processors() > 1 and sum(map(_bytes, paths)) >= ENOUGH_BYTES


def read_by_processes(
    paths: Sequence[Path], meanwhile: Callable[[], None]
) -> dict[Path, RecordFile | GpuliftError]:
    """What each file holds, or why it cannot be read; a file whose process was killed is absent.

    This process does `meanwhile` while the others read.
    """
    shares: list[list[Path]] = [[] for _ in range(min(_processors(), len(paths)))]
    for path in sorted(paths, key=_bytes, reverse=True):
        min(shares, key=lambda share: sum(map(_bytes, share))).append(path)
    started = [processes.start(_read, share) for share in shares]
    try:
        with ThreadPoolExecutor(len(shares)) as threads:
            answers = threads.map(_answers, shares, [answers for _, answers in started])
            meanwhile()
            return {path: answer for found in answers for path, answer in found.items()}
    finally:
        for process, receiver in started:
            receiver.close()
            process.join()


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


def _answers(
    paths: Sequence[Path], receiver: Connection
) -> Mapping[Path, RecordFile | GpuliftError]:
    found: dict[Path, RecordFile | GpuliftError] = {}
    with suppress(OSError, EOFError, pickle.UnpicklingError):  # it was killed
        for path in paths:
            found[path] = pickle.loads(receiver.recv_bytes())
    return found


def _read(paths: Sequence[Path], sender: Connection) -> None:
    """The other process."""
    from gpulift.records.read import read_file

    gc.disable()
    # An interrupt is told by the process that asked, and so is that it went away.
    with suppress(KeyboardInterrupt, BrokenPipeError):
        for path in paths:
            answer: RecordFile | GpuliftError
            try:
                answer = read_file(path, keep=False)
            except GpuliftError as error:
                answer = error
            sender.send_bytes(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))


def _processors() -> int:
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # reading it will say why
        return 0
