"""Summarises many runs by two processes, which both have the records already."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from gpulift import processes
from gpulift.analysis.summary import Summary
from gpulift.errors import GpuliftError
from gpulift.records.model import Arm, Record
from gpulift.records.read import Run

ENOUGH_RECORDS = 2000  # which take 0.15 s

Summarise = Callable[[Run], Summary]


def summaries(runs: Sequence[Run], summarise: Summarise) -> list[Summary]:
    """Of each run, in their order."""
    count = sum(len(run.records) for run in runs)
    if len(runs) < 2 or count < ENOUGH_RECORDS or len(os.sched_getaffinity(0)) < 2:
        return [summarise(run) for run in runs]
    middle = len(runs) // 2
    process, receiver = processes.start(_work, runs, middle, summarise)
    try:
        mine = [summarise(run) for run in runs[:middle]]
        theirs = _Unpickler(receiver.recv_bytes(), runs).load()
    except EOFError:  # it met an error, which will show here too, or was killed
        theirs = [summarise(run) for run in runs[middle:]]
    finally:
        receiver.close()
        process.join()
    return [*mine, *theirs]


def _work(runs: Sequence[Run], middle: int, summarise: Summarise, sender: Connection) -> None:
    out = io.BytesIO()
    with suppress(GpuliftError, BrokenPipeError):
        _Pickler(out, runs).dump([summarise(run) for run in runs[middle:]])
        sender.send_bytes(out.getbuffer())


class _Pickler(pickle.Pickler):
    """Leaves out what the other process has: it tells the places of runs, records and arms."""

    def __init__(self, out: io.BytesIO, runs: Sequence[Run]) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._places = {id(one): place for place, one in enumerate(_shared(runs))}

    def persistent_id(self, value: Any) -> int | None:
        return self._places.get(id(value))


class _Unpickler(pickle.Unpickler):
    """Finds it at these places."""

    def __init__(self, pickled: bytes, runs: Sequence[Run]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._shared = _shared(runs)

    def persistent_load(self, place: int) -> Run | Record | Arm:
        return self._shared[place]


def _shared(runs: Sequence[Run]) -> list[Run | Record | Arm]:
    records = [record for run in runs for record in run.records]
    return [*runs, *records, *(arm for record in records for arm in record.arms)]
