"""Reads many files by several processes at once, where there is enough to read to pay for them."""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from gpulift import processes
from gpulift.errors import GpuliftError

if TYPE_CHECKING:
    from gpulift.records.read import RecordFile

MOST_PROCESSES = 8  # this one has to unpickle what all of them read
MOST_PORTIONS = 1000  # into which the files are divided, of which each process takes the next
ENOUGH_BYTES = 32_000_000  # half a second of reading

_Portions = Sequence[Sequence[Path]]
_Answer = tuple[Path, "RecordFile | GpuliftError"]


def worth_processes(paths: Sequence[Path]) -> bool:
    """Whether these files are read sooner by several processes."""
    return len(paths) > 1 and _processors() > 1 and sum(map(_bytes, paths)) >= ENOUGH_BYTES


def read_by_processes(
    paths: Sequence[Path], meanwhile: Callable[[], None]
) -> dict[Path, RecordFile | GpuliftError]:
    """What each file holds, or why it cannot be read; a file whose process was killed is absent.

    This process does `meanwhile` while the others read, and then reads too.
    """
    largest_first = sorted(paths, key=_bytes, reverse=True)
    portions = [largest_first[i::MOST_PORTIONS] for i in range(min(len(paths), MOST_PORTIONS))]
    queue = processes.queue(len(portions))
    others = [_Other(portions, queue) for _ in range(min(_processors() - 1, len(portions)))]
    try:
        meanwhile()
        found: dict[Path, RecordFile | GpuliftError] = {}
        for path, answer in _taken(portions, queue):
            found[path] = answer
            for other in others:
                found.update(other.answers(0))
        for other in others:
            found.update(other.answers(None))
        return found
    finally:
        os.close(queue)
        for other in others:
            other.close()


class _Other:
    """Another process that reads. It tells how long an answer is, and has it in a file in memory.

    Through a pipe, this process would have to stop reading to let the other one go on.
    """

    def __init__(self, portions: _Portions, queue: int) -> None:
        self._memory = os.memfd_create("answers")
        self._start = 0  # of the next answer
        self._process, self._receiver = processes.start(_read, portions, queue, self._memory)

    def answers(self, timeout_s: float | None) -> Iterator[_Answer]:
        """Those that are there within the timeout; without one, all that there will be."""
        with suppress(OSError, EOFError, pickle.UnpicklingError):  # it is done, or was killed
            while self._receiver.poll(timeout_s):
                size = self._receiver.recv()
                yield pickle.loads(os.pread(self._memory, size, self._start))
                self._start += size

    def close(self) -> None:
        self._receiver.close()
        self._process.join()
        os.close(self._memory)


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


def _read(portions: _Portions, queue: int, memory: int, sender: Connection) -> None:
    """The other process."""
    gc.disable()
    # An interrupt is told by the process that asked, which went away or reads what this one cannot
    # write, as when memory is full.
    with suppress(KeyboardInterrupt, OSError), open(memory, "wb", closefd=False) as out:
        for answer in _taken(portions, queue):
            pickled = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
            out.write(pickled)
            out.flush()
            sender.send(len(pickled))


def _taken(portions: _Portions, queue: int) -> Iterator[_Answer]:
    """Reads what no other process took."""
    from gpulift.records.read import read_file

    for number in processes.taken(queue):
        for path in portions[number]:
            try:
                found = read_file(path, keep=False)
            except GpuliftError as error:
                yield path, error
                continue
            for record in found.records:
                record.settle()
            yield path, found


def _processors() -> int:
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # reading it will say why
        return 0
