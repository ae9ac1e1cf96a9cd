"""Chooses the folder of a run: a new one, which it makes, or the unfinished one that the same
command left. Until the run ends no other command chooses it."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpulift.ground.errors import GpuliftError, write_error
from gpulift.ground.whole import is_aside, write_whole
from gpulift.records.decode import converted
from gpulift.records.files import WRITTEN, is_published, record_files
from gpulift.records.model import Context
from gpulift.records.together import PART, STATE_FILE, read_state

ROWS_FILE = "rows.tsv"  # which rows gpulift-bench is told to measure
LOCK_FILE = ".lock"  # gpulift-bench's: one writer per folder
RUNNING = "running"
COMPLETE = "complete"
PAGE = Path("report", "index.html")  # in the folder of a run that was reported
COMMIT_DIGITS = 7
CONDITION_DIGITS = 8


@dataclass(frozen=True)
class RunFolder:
    """Where a run writes, and whether it goes on from an earlier one. As a context it keeps other
    commands out, and at its end leaves no folder in which nothing was recorded."""

    path: Path
    resumed: bool
    lock: int

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        discard_if_empty(self.path)
        os.close(self.lock)


@dataclass(frozen=True)
class Wanted:
    """What is about to be measured; a folder with the same content can be resumed."""

    slug: str
    commit: str
    dirty: bool
    options: Mapping[str, Any]
    build: str = ""
    conditions: str = ""

    @property
    def stem(self) -> str:
        """Commit part of the folder's name."""
        return f"{self.commit}-dirty" if self.dirty else self.commit


def wanted(context: Context, options: Mapping[str, Any], bench: Path) -> Wanted:
    """What this build would measure on this machine with these options."""
    build = context.build
    return Wanted(
        slug=context.slug,
        commit=build.commit[:COMMIT_DIGITS] or "unknown",
        dirty=bool(build.dirty),
        options=options,
        build=fingerprint(bench) if build.doubt else "",
        conditions=_conditions(context),
    )


def _conditions(context: Context) -> str:
    """Of compilers and process a hash: under others the run that was begun is another one."""
    build = replace(context.build, commit="", dirty=None)
    told = json.dumps([dict(context.environment), asdict(build)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:CONDITION_DIGITS]


def choose(
    results: Path, want: Wanted, today: datetime | None = None, *, reported: bool = False
) -> RunFolder:
    """The folder below `results`: the newest unfinished run like this one with which no other
    command is busy, or else a new one. One that is to be `reported` is unfinished until its page
    is there."""
    above = results / want.slug
    pattern = re.compile(rf"\d{{4}}-\d\d-\d\d-{re.escape(want.stem)}(-\d+)?")
    found = [folder for folder in _folders(above) if pattern.fullmatch(folder.name)]
    unfinished = [
        folder
        for folder in found
        if _resumable(folder, want, complete=reported and not (folder / PAGE).is_file())
    ]
    unfinished.sort(key=lambda folder: (folder / STATE_FILE).stat().st_mtime, reverse=True)
    for folder in unfinished:
        if chosen := _held(folder, want, complete=reported):
            return chosen
    day = (today or datetime.now(timezone.utc)).strftime("%Y-%m-%d")
    while True:
        if chosen := _held(make_new(above, f"{day}-{want.stem}"), want):
            return chosen


def choose_named(path: Path, want: Wanted) -> RunFolder:
    """The folder that the user named, unless it holds another run. Of this one, complete or not, it
    is gone on with: what is made of its records may be what a full disk or a kill cut off."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        chosen = _held(path, want, complete=True)
    except FileExistsError:
        raise GpuliftError(f"{path}: is not a folder") from None
    except OSError as error:
        raise write_error(path, error) from None
    if chosen:
        return chosen
    raise GpuliftError(
        f"{path}: is not empty and holds no run to go on with, or another command is busy with it;"
        " name another folder"
    )


def make_new(above: Path, name: str) -> Path:
    """Makes a folder that was not there, so that of two commands each gets its own; it has a number
    where the name is taken."""
    path, number = above / name, 1
    while True:
        try:
            above.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            return path
        except FileExistsError:
            number += 1
            path = above / f"{name}-{number}"
        except OSError as error:
            raise write_error(path, error) from None


def _held(folder: Path, want: Wanted, *, complete: bool = False) -> RunFolder | None:
    """The folder, if it is empty or holds this very run, and no other command is busy with it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    busy = False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        busy = True
    except OSError:  # a disk that locks no folders, as NFS; gpulift-bench locks a file in it
        pass
    if not busy:
        resumed = _resumable(folder, want, complete=complete)
        if resumed or all(map(is_aside, folder.iterdir())):
            return RunFolder(folder, resumed, lock)
    os.close(lock)
    return None


def save_state(folder: Path, want: Wanted, state: str) -> None:
    """Writes run.json."""
    file = folder / STATE_FILE
    begun = read_state(folder).get("started_at", "")
    document = {
        "machine": want.slug,
        "commit": want.stem,
        "options": dict(want.options),
        "state": state,
        "started_at": converted(begun, str, str(file), "started_at")
        or datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if want.build:
        document["build"] = want.build
    if want.conditions:
        document["conditions"] = want.conditions
    write_whole(json.dumps(document, indent=2, allow_nan=False) + "\n", file)


def discard_if_empty(folder: Path) -> None:
    """Removes a folder in which nothing was recorded, and nothing but a run's own files is; one
    that has parts beside it stays."""
    own = (STATE_FILE, ROWS_FILE, LOCK_FILE)
    with suppress(OSError):  # a folder that is gone, or that cannot be removed
        entries = list(folder.iterdir())
        empty = all(
            entry.name in own or is_aside(entry) or _is_empty_record_file(entry)
            for entry in entries
        )
        parts = folder.parent.glob(f"{glob.escape(folder.name)}{PART}*")
        if empty and not any(part.is_dir() for part in parts):
            for entry in entries:
                entry.unlink()
            folder.rmdir()


def _is_empty_record_file(entry: Path) -> bool:
    return entry.suffix == WRITTEN and entry.stat().st_size == 0


def _folders(above: Path) -> list[Path]:
    return [entry for entry in above.iterdir() if entry.is_dir()] if above.is_dir() else []


def _resumable(folder: Path, want: Wanted, *, complete: bool) -> bool:
    state = read_state(folder)
    if state.get("state") not in ((RUNNING, COMPLETE) if complete else (RUNNING,)):
        return False
    if any(map(is_published, record_files(folder))):  # gpulift-bench would measure all of it anew
        return False
    return is_of(state, want)


def is_of(state: Mapping[str, Any], want: Wanted) -> bool:
    """Whether what run.json says is what is wanted."""
    asked = {"machine": want.slug, "commit": want.stem, "options": dict(want.options)}
    same = all(state.get(key) == value for key, value in asked.items())
    told = (state.get("build", ""), state.get("conditions", ""))
    return same and told == (want.build, want.conditions)


def state_of(folder: Path) -> str:
    """`running` or `complete`; empty where nothing says it."""
    return str(read_state(folder).get("state", ""))


def fingerprint(bench: Path) -> str:
    """Of what a build folder measures with. It tells builds apart whose commit does not, of which
    only the very same one may go on with its run."""
    total = hashlib.sha256()
    modules = bench.parent / "modules"
    for file in [bench, *sorted([*modules.glob("*.so"), *modules.glob("*.py")])]:
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:12]
