"""`gpulift check --compress`: checks runs and compresses their records, which stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from gpulift.commands.check import run_complaints
from gpulift.engine.runs import RUNNING, state_of
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, OK, GpuliftError, write_error
from gpulift.ground.whole import write_whole
from gpulift.records.files import (
    PUBLISHED,
    compressed,
    content_of,
    decompressed,
    is_published,
    record_files,
    stem_of,
)


def compress(runs: Sequence[Path], unfinished: bool) -> int:
    """A complaint is a line, then nothing of that run is changed; the exit code."""
    complaints = [line for run in runs for line in _publish(run, unfinished, typer.echo)]
    for line in complaints:
        say(line)
    return FAILED if complaints else OK


def _publish(run: Path, unfinished: bool, tell: Callable[[str], object]) -> list[str]:
    """Publishes a run, unless there is something to complain of."""
    files = record_files(run) if run.is_dir() else []
    if not files:
        raise GpuliftError(f"{run}: is no folder of a run: there are no records (*.jsonl) in it")
    if state_of(run) == RUNNING and not unfinished:
        return [f"{run}: the run is not finished; go on with it, or compress it --unfinished"]
    if complaints := run_complaints(run):
        return complaints
    written = [file for file in files if not is_published(file)]
    if others := [file.name for file in written if _is_of_other_content(_target(file), file)]:
        return [
            f"{run}: {', '.join(others)}: is there, and published with other content: remove the"
            " one that is not wanted"
        ]
    before = sum(file.stat().st_size for file in written)
    after = sum(map(_compress, written))
    tell(f"{run}: {len(written)} files, {before} bytes, now {after}")
    return []


def _target(file: Path) -> Path:
    return file.with_name(f"{stem_of(file)}{PUBLISHED}")


def _is_of_other_content(target: Path, file: Path) -> bool:
    """Not of the same, as where an earlier call was killed before it removed the file."""
    return target.exists() and content_of(target) != content_of(file)


def _compress(file: Path) -> int:
    """Replaces the file; the bytes that it takes now. What cannot be read back is not replaced."""
    content = file.read_bytes()
    shorter = compressed(content)
    if decompressed(shorter, str(file)) != content:
        raise GpuliftError(f"{file}: does not come back from its compressed form", FAILED)
    target = _target(file)
    write_whole(shorter, target)
    try:
        file.unlink()
    except OSError as error:
        raise write_error(target, error) from None
    return len(shorter)
