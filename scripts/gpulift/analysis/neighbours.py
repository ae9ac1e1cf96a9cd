"""What ran on other cards of a host while a record was measured, by the times of windows.

Cards of a host share its processors, memory and often power: nobody has to have said that several
were busy. Records name the boot of their host, and windows begin on its steady clock, which
processes share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import add
from pathlib import Path

from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.records.files import record_files, size_of
from gpulift.records.model import Record
from gpulift.records.read import Run, read_file


def neighbours_at(runs: Iterable[Run], say: Callable[[str], None]) -> dict[str, int]:
    """The same of these runs and of all that lie beside them, as results do: below a folder of the
    machine's name. What cannot be read is left out, and said."""
    hosts: dict[Path, set[str]] = {}
    for run in runs:
        if run.folder.parent.name == run.model:
            ids = {one.context.host.id for one in run.records} - {""}
            hosts.setdefault(run.folder.parent, set()).update(ids)
    every = (folder for above, ids in hosts.items() if ids for folder in sorted(above.iterdir()))
    found: list[Record] = []
    for folder in every:
        try:
            found += _records_of(folder, hosts[folder.parent])
        except GpuliftError as error:
            say(f"warning: left out: {visible(str(error))}")
    return neighbours_of(found)


def neighbours_of(records: Iterable[Record]) -> dict[str, int]:
    """Of each of these records, by its id, how many other cards of its host were busy with other
    runs of these meanwhile; none where that is none."""
    by_host: dict[str, list[Record]] = {}
    for record in records:
        timed = any(len(arm.windows.start_s) for arm in record.arms)
        if record.context.host.id and record.context.gpu and timed:
            by_host.setdefault(record.context.host.id, []).append(record)
    counts = {one.id: len(_others(one, of_host)) for of_host in by_host.values() for one in of_host}
    return {id: count for id, count in counts.items() if count}


def _others(record: Record, of_host: Sequence[Record]) -> set[str]:
    """The cards of other runs that were busy while the record was measured."""
    begin, end = _windows_s(record)
    own, seen = _cards(record), set[str]()
    for one in of_host:
        if one.file.parent != record.file.parent and own.isdisjoint(cards := _cards(one)):
            other_begin, other_end = _case_s(one)
            if other_begin < end and begin < other_end:
                seen |= cards
    return seen


def _cards(record: Record) -> frozenset[str]:
    gpus = (record.context.gpu, *record.context.gpus)
    return frozenset(gpu.card for gpu in gpus if gpu)


def _windows_s(record: Record) -> tuple[float, float]:
    """When its first window began and its last one ended, on the clock of its host."""
    windows = [one.windows for one in record.arms if len(one.windows.start_s)]
    ends = (map(add, one.start_s, one.host_s) for one in windows)
    return min(min(one.start_s) for one in windows), max(map(max, ends))


def _case_s(record: Record) -> tuple[float, float]:
    """The same of its whole case: checks come before the windows, and joules behind them."""
    _, last = _windows_s(record)
    end = last + record.time_s.get("energy", 0.0)
    return end - record.time_s.get("total", 0.0), end


def _records_of(folder: Path, hosts: set[str]) -> list[Record]:
    """Those of a run folder that was measured on one of these hosts, which its smallest file
    tells."""
    files = [file for file in record_files(folder) if size_of(file)] if folder.is_dir() else []
    if not files:
        return []
    first = read_file(min(files, key=size_of)).records
    if not hosts & {one.context.host.id for one in first}:
        return []
    return [record for file in files for record in read_file(file).records]
