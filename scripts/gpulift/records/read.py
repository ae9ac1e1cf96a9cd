"""Reads records: JSON Lines, one self-contained object per (technique, case, launch)."""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpulift.errors import GpuliftError, RecordError
from gpulift.records.files import content_of, record_files, record_files_below, size_of
from gpulift.records.model import Context, Record
from gpulift.records.parse import read_record
from gpulift.records.together import was_crowded


class NotJsonError(RecordError):
    """A line that is no JSON at all, as one is that was cut off."""


@dataclass(frozen=True)
class RecordFile:
    """The records of one file, and what a reader should know about the reading."""

    records: tuple[Record, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """The records of one run folder, which come from one machine and one build."""

    folder: Path
    records: tuple[Record, ...]
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The machine and the folder, as in `nvidia-h200/2026-11-21-abc1234`."""
        return f"{self.records[0].context.slug}/{self.folder.name}"

    @property
    def machine(self) -> str:
        """The device as people call it."""
        context = self.records[0].context
        return context.gpu.name if context.gpu else context.host.cpu

    @property
    def full(self) -> bool:
        """Whether this was a run of all cases rather than of the quick ones."""
        return not self.records[0].context.options.get("quick", False)


def read_file(path: Path) -> RecordFile:
    """All records of a file. A last line that was cut off is dropped with a warning.

    A process that is killed while it appends leaves a last line without its line feed; every other
    line that cannot be read is an error.
    """
    records: list[Record] = []
    warnings: list[str] = []
    contexts: dict[bytes, Context] = {}
    for number, line in enumerate(io.BytesIO(content_of(path)), start=1):
        try:
            if line.strip():
                raw = parse_line(line, f"{path}:{number}")
                records.append(read_record(raw, path, number, contexts))
        except NotJsonError:
            if line.endswith(b"\n"):
                raise
            warnings.append(f"{path}:{number}: the last line is cut off; it was dropped")
    return RecordFile(tuple(records), tuple(warnings))


def parse_line(line: bytes, place: str) -> Mapping[str, Any]:
    """The JSON object of one line; NaN, infinity and a key that is there twice are refused."""

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise RecordError(f"{place}: {digits[:20]} must be finite")
        return value

    def refuse(constant: str) -> None:
        raise RecordError(f"{place}: {constant} is not a number that a record may hold")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise RecordError(f"{place}: {twice!r} is there twice in one object")
        return found

    try:
        raw = json.loads(
            line.decode("utf-8"),
            parse_constant=refuse,
            parse_float=number,
            object_pairs_hook=unique,
        )
    except (ValueError, RecursionError):
        raise NotJsonError(f"{place}: not a line of JSON") from None
    if not isinstance(raw, dict):
        raise RecordError(f"{place}: the line must be an object")
    if b"\\u" in line:  # only an escape can spell half a character
        _require_writable(raw, place)
    return raw


def _require_writable(raw: Mapping[str, Any], place: str) -> None:
    """Tables and reports are written as UTF-8, which has no half characters."""
    try:
        json.dumps(raw, ensure_ascii=False).encode("utf-8")
    except ValueError:
        raise RecordError(f"{place}: holds text that cannot be written as UTF-8") from None


def read_run(folder: Path) -> Run:
    """All records of a run folder; of records of the same launch, the last one counts."""
    return _run(*_files_of(folder))


def read_results(
    paths: Iterable[Path],
    *,
    every_case: bool = False,
) -> list[Run]:
    """The runs that the paths name, in that order.

    A path is a record file, a run folder, or a folder above run folders, which stands for the
    run to show of each machine in it: full before quick, of most techniques, then the newest. With
    `every_case` it stands for all cases of each machine, each as one run has it: one that measured
    it, in two launches or more if there is such, full before quick, then of most techniques, then
    newest. A run in which several GPUs were busy at once is only taken where a path names it.
    """
    groups: list[list[_Place]] = []
    for path in paths:
        if not _exists(path):
            raise GpuliftError(f"{path}: there is no such file or folder")
        found = _groups_at(path, every_case=every_case)
        if not any(found):
            crowded = any(was_crowded(folder) for folder in run_folders(path))
            other = " of a GPU that was busy alone" if crowded else ""
            raise GpuliftError(f"{path}: there are no records{other} (*.jsonl, *.jsonl.zst) in it")
        groups.extend(found)
    return [run for group in groups for run in _every_case([_run(*place) for place in group])]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, or a folder that may not be read
        return False


def run_folders(above: Path) -> list[Path]:
    """All folders with record files below a folder, oldest name first."""
    return sorted({file.parent for file in record_files_below(above)}, key=_natural)


def newest_run(folders: Sequence[Path]) -> Run | None:
    """Of these folders the run to show: full before quick, then of most techniques, then newest.

    None in which several GPUs were busy at once.
    """
    best = _newest(folders)
    return read_run(best) if best else None


def cases_of(folders: Sequence[Path]) -> list[Run]:
    """All cases of one machine's run folders, each as one run has it; as `read_results` has them
    of a folder above. None in which several GPUs were busy at once."""
    return _every_case([_run(*_files_of(one)) for one in _ranked(folders)])


def _newest(folders: Sequence[Path]) -> Path | None:
    return next(iter(_ranked(folders)), None)


def _ranked(folders: Sequence[Path]) -> list[Path]:
    filled = [one for one in folders if _files_with_records(one) and not was_crowded(one)]
    return sorted(filled, key=_rank, reverse=True)


def _every_case(runs: Sequence[Run]) -> list[Run]:
    """Each case in one of these runs, which are in the order in which they are preferred."""
    if len(runs) < 2:
        return list(runs)
    chosen: dict[tuple[str, ...], Run] = {}
    measured = [Counter(one.subject for one in run.records if one.outcome == "ok") for run in runs]
    for least in (2, 1, 0):  # launches that were measured
        for run, launches in zip(runs, measured, strict=True):
            for record in run.records:
                if launches[record.subject] >= least:
                    chosen.setdefault(record.subject, run)
    kept = (
        replace(run, records=tuple(one for one in run.records if chosen[one.subject] is run))
        for run in runs
    )
    return [run for run in kept if run.records]


def _rank(folder: Path) -> tuple[bool, int, str, list[int | str]]:
    files = _files_with_records(folder)
    records = read_file(min(files, key=size_of)).records
    quick = any(one.context.options.get("quick", False) for one in records)
    started_at = max((one.started_at for one in records), default="")
    return (not quick, len(files), started_at, _natural(folder))


def _files_with_records(folder: Path) -> list[Path]:
    return [file for file in record_files(folder) if size_of(file)]


_Place = tuple[Path, list[Path]]  # a run folder, and which of its files to read


def _files_of(folder: Path) -> _Place:
    return folder, record_files(folder)


def _groups_at(path: Path, *, every_case: bool) -> list[list[_Place]]:
    """What the path stands for: of each machine the runs of which its cases are taken."""
    if path.is_file():
        return [[(path.parent, [path])]]
    if record_files(path):
        return [[_files_of(path)]]
    machines: dict[Path, list[Path]] = {}
    for folder in run_folders(path):
        machines.setdefault(folder.parent, []).append(folder)
    most = None if every_case else 1
    return [[_files_of(one) for one in _ranked(found)[:most]] for found in machines.values()]


def _run(folder: Path, files: Sequence[Path]) -> Run:
    warnings: list[str] = []
    latest: dict[tuple[tuple[str, ...], int], Record] = {}
    for file in files:
        content = read_file(file)
        warnings.extend(content.warnings)
        for record in content.records:
            key = (record.subject, record.launch)
            if key in latest:
                warnings.append(f"{file}:{record.line}: replaces line {latest[key].line}")
            latest[key] = record
    if not latest:
        place = files[0] if len(files) == 1 else folder
        cause = f": {warnings[0]}" if warnings else ""
        raise GpuliftError(f"{place}: there are no records in it{cause}")
    return Run(folder, tuple(latest.values()), tuple(warnings))


def _natural(folder: Path) -> list[int | str]:
    """Sorts `2026-11-21-abc-10` after `2026-11-21-abc-2`."""
    parts = re.split(r"(\d+)", str(folder))
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]
