"""Chooses the folder of a run: a new one, or the unfinished one that the same command left."""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpulift.errors import FAILED, USAGE, GpuliftError
from gpulift.records.fields import Fields
from gpulift.records.files import WRITTEN, is_published, record_files
from gpulift.records.model import Context
from gpulift.records.read import parse_line
from gpulift.records.together import STATE_FILE

ROWS_FILE = "rows.tsv"  # which rows gpulift-bench is told to measure
LOCK_FILE = ".lock"  # gpulift-bench's: one writer per folder
RUNNING = "running"
COMPLETE = "complete"
COMMIT_DIGITS = 7
CONDITION_DIGITS = 8


@dataclass(frozen=True)
class RunFolder:
    """Where a run writes, and whether it goes on from an earlier one."""

    path: Path
    resumed: bool


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


def choose(results: Path, want: Wanted, today: datetime | None = None) -> RunFolder:
    """The folder below `results`: the newest unfinished run like this one, or else a new one."""
    above = results / want.slug
    pattern = re.compile(rf"\d{{4}}-\d\d-\d\d-{re.escape(want.stem)}(-\d+)?")
    found = [folder for folder in _folders(above) if pattern.fullmatch(folder.name)]
    unfinished = [folder for folder in found if _resumable(folder, want)]
    if unfinished:
        newest = max(unfinished, key=lambda folder: (folder / STATE_FILE).stat().st_mtime)
        return RunFolder(newest, resumed=True)
    date = (today or datetime.now(timezone.utc)).strftime("%Y-%m-%d")
    path, number = above / f"{date}-{want.stem}", 1
    while path.exists():
        number += 1
        path = above / f"{date}-{want.stem}-{number}"
    return RunFolder(path, resumed=False)


def choose_named(path: Path, want: Wanted) -> RunFolder:
    """The folder that the user named, unless it holds another run."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return RunFolder(path, resumed=False)
    if not path.is_dir():
        raise GpuliftError(f"{path}: is not a folder")
    if _resumable(path, want):
        return RunFolder(path, resumed=True)
    raise GpuliftError(f"{path}: is not empty and holds no run to go on with; name another folder")


def save_state(folder: Path, want: Wanted, state: str) -> None:
    """Writes run.json, making the folder where needed."""
    file = folder / STATE_FILE
    document = {
        "machine": want.slug,
        "commit": want.stem,
        "options": dict(want.options),
        "state": state,
        "started_at": _started_at(file)
        or datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if want.build:
        document["build"] = want.build
    if want.conditions:
        document["conditions"] = want.conditions
    whole = folder / f".{STATE_FILE}.new"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        whole.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        whole.replace(file)
    except OSError as error:
        with suppress(OSError):  # nothing is left of a folder that cannot serve
            whole.unlink(missing_ok=True)
            folder.rmdir()
        raise write_error(folder, error) from None


def write_error(path: Path, error: OSError) -> GpuliftError:
    """A full disk is a failure of the run; a place that cannot be written is a usage error."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return GpuliftError(f"{path}: cannot be written: {error.strerror}", FAILED if full else USAGE)


def discard_if_empty(folder: Path) -> None:
    """Removes a folder in which nothing was recorded, and nothing but a run's own files is."""
    entries = list(folder.iterdir()) if folder.is_dir() else []
    own = (STATE_FILE, ROWS_FILE, LOCK_FILE)
    if entries and all(entry.name in own or _is_empty_record_file(entry) for entry in entries):
        for entry in entries:
            entry.unlink()
        folder.rmdir()


def _is_empty_record_file(entry: Path) -> bool:
    return entry.suffix == WRITTEN and entry.stat().st_size == 0


def _folders(above: Path) -> list[Path]:
    return [entry for entry in above.iterdir() if entry.is_dir()] if above.is_dir() else []


def _resumable(folder: Path, want: Wanted) -> bool:
    state = _state(folder / STATE_FILE)
    if state is None or state.get("state") != RUNNING:
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
    return str((_state(folder / STATE_FILE) or {}).get("state", ""))


def _state(file: Path) -> Mapping[str, Any] | None:
    """The content of run.json, or None where there is none that can be read."""
    try:
        return parse_line(file.read_bytes(), str(file))
    except (OSError, GpuliftError):
        return None


def _started_at(file: Path) -> str:
    state = _state(file)
    return Fields(dict(state), str(file)).text("started_at", "") if state else ""


def fingerprint(bench: Path) -> str:
    """Of what a build folder measures with. It tells builds apart whose commit does not, of which
    only the very same one may go on with its run."""
    total = hashlib.sha256()
    modules = bench.parent / "modules"
    for file in [bench, *sorted([*modules.glob("*.so"), *modules.glob("*.py")])]:
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:12]
