"""Reads records: JSON Lines, one self-contained object per (technique, case, launch)."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpulift.ground.errors import GpuliftError
from gpulift.records.decode import NotJsonError, parse_line
from gpulift.records.files import content_of, record_files, record_files_below, size_of, stem_of
from gpulift.records.model import Context, Record
from gpulift.records.parse import read_record
from gpulift.records.together import was_crowded


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
        return f"{self.model}/{self.folder.name}"

    @property
    def model(self) -> str:
        """The folder name of its machine, which tells processors of one name apart."""
        return self.records[0].context.slug

    @property
    def machine(self) -> str:
        """The device as people call it."""
        context = self.records[0].context
        return context.gpu.name if context.gpu else context.host.cpu

    @property
    def full(self) -> bool:
        """Whether this was a run of all cases rather than of the quick ones."""
        return not self.records[0].context.options.get("quick", False)


Choose = Callable[[Sequence[Run]], list[Run]]  # of all runs of a machine


def read_file(path: Path) -> RecordFile:
    """All records of a file. A last line that was cut off is dropped with a warning. Within
    `reading_once` a file that was read before is not read again.

    A process that is killed while it appends leaves a last line without its line feed; every other
    line that cannot be read is an error.
    """
    if _contents is None:
        return _read(path)
    if path not in _contents:
        _contents[path] = _read(path)
    return _contents[path]


_contents: dict[Path, RecordFile] | None = None  # of the files that were read once


@contextmanager
def reading_once() -> Iterator[None]:
    """For what comes back to files that it has read, and holds most of their records anyway."""
    global _contents
    before = _contents
    _contents = {} if before is None else before
    try:
        yield
    finally:
        _contents = before


def _read(path: Path) -> RecordFile:
    records: list[Record] = []
    warnings: list[str] = []
    contexts: dict[bytes, Context] = {}
    for number, line in enumerate(io.BytesIO(content_of(path)), start=1):
        try:
            if line.strip():
                raw = parse_line(line, f"{path}:{number}")
                records.append(read_record(raw, path, number, contexts, line))
        except NotJsonError:
            if line.endswith(b"\n"):
                raise
            warnings.append(f"{path}:{number}: the last line is cut off; it was dropped")
    return RecordFile(tuple(records), tuple(warnings))


def read_run(folder: Path) -> Run:
    """All records of a run folder; of records of the same launch, the last one counts."""
    return _run(*_files_of(folder))


def read_results(
    paths: Iterable[Path],
    *,
    choose: Choose | None = None,
) -> list[Run]:
    """The runs that the paths name, in that order.

    A path is a record file, a run folder, or a folder above run folders, which stands for the
    run to show of each machine in it: full before quick, of most techniques, then the newest; or
    for what `choose` takes of all its runs (`analysis.choice`). A run in which several GPUs were
    busy at once is only taken where a path names it.
    """
    groups: list[list[_Place]] = []
    for path in paths:
        if not _exists(path):
            raise GpuliftError(f"{path}: there is no such file or folder")
        found = _groups_at(path, every=choose is not None)
        if not any(found):
            crowded = any(was_crowded(folder) for folder in run_folders(path))
            other = " of a GPU that was busy alone" if crowded else ""
            raise GpuliftError(f"{path}: there are no records{other} (*.jsonl, *.jsonl.zst) in it")
        groups.extend(found)
    read = ([_run(*place) for place in group] for group in groups)
    return [run for runs in read for run in (choose(runs) if choose else runs)]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, or a folder that may not be read
        return False


def run_folders(above: Path) -> list[Path]:
    """All folders with record files below a folder, oldest name first."""
    return sorted({file.parent for file in record_files_below(above)}, key=natural)


def newest_run(folders: Sequence[Path]) -> Run | None:
    """Of these folders the run to show: full before quick, then of most techniques, then newest.

    None in which several GPUs were busy at once.
    """
    best = _newest(folders)
    return read_run(best) if best else None


def runs_of(folders: Sequence[Path], stems: Collection[str] | None = None) -> list[Run]:
    """The runs of one machine's folders, as `read_results` has them of a folder above. None in
    which several GPUs were busy at once; of some techniques alone where the `stems` of their files
    are given."""
    places = [_files_of(one) for one in _ranked(folders)]
    if stems is not None:
        places = [(one, [f for f in files if stem_of(f) in stems]) for one, files in places]
    return [_run(*place) for place in places if place[1]]


def _newest(folders: Sequence[Path]) -> Path | None:
    return next(iter(_ranked(folders)), None)


def _ranked(folders: Sequence[Path]) -> list[Path]:
    filled = [one for one in folders if _files_with_records(one) and not was_crowded(one)]
    return sorted(filled, key=_rank, reverse=True)


def lacks_launches(records: Sequence[Record]) -> bool:
    """Whether any case has fewer launches than were planned."""
    found = Counter(one.subject for one in records)
    return any(found[one.subject] < one.launches for one in records)


def _rank(folder: Path) -> tuple[bool, int, str, list[int | str]]:
    files = _files_with_records(folder)
    records = read_file(min(files, key=size_of)).records
    quick = any(one.context.options.get("quick", False) for one in records)
    started_at = max((one.began_at for one in records), default="")
    return (not quick, len(files), started_at, natural(folder))


def _files_with_records(folder: Path) -> list[Path]:
    return [file for file in record_files(folder) if size_of(file)]


_Place = tuple[Path, list[Path]]  # a run folder, and which of its files to read


def _files_of(folder: Path) -> _Place:
    return folder, record_files(folder)


def _groups_at(path: Path, *, every: bool) -> list[list[_Place]]:
    """What the path stands for: of each machine the runs of which its cases are taken."""
    if path.is_file():
        return [[(path.parent, [path])]]
    if record_files(path):
        return [[_files_of(path)]]
    machines: dict[Path, list[Path]] = {}
    for folder in run_folders(path):
        machines.setdefault(folder.parent, []).append(folder)
    most = None if every else 1
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


def natural(name: str | Path) -> list[int | str]:
    """Sorts `bytes:65536` after `bytes:4096`, and `2026-11-21-abc-10` after `2026-11-21-abc-2`."""
    parts = re.split(r"(\d+)", str(name))
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]
