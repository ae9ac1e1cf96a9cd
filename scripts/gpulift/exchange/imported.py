"""Records of what another tool measured, of kind "import".

Nothing judges them: `qualify`, `certify`, `claims` and `reference build` pass them by or refuse
them, `cite` refuses them, and so does `check` among results. `show` prints them, `export` takes
them, and `compare` compares two folders of them. What is not known is said to be so or absent, and
what the other tool said is in `imported`, word for word.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpulift.ground.errors import GpuliftError, write_error
from gpulift.ground.whole import whole_folder
from gpulift.records.model import IMPORT
from gpulift.records.parse import read_record

BENCHMARK = "benchmark"  # the one arm
SCHEMA = "1.4"
VERSION = 2  # of how files become records; the first mixed benchmarks of one name
UNKNOWN = "unknown"
LONGEST_NAME = 60  # letters of a file's name

Json = dict[str, Any]
Case = dict[str, int | float | str]


@dataclass(frozen=True)
class Imported:
    """The records of all files, and a line for each row that is in none, or without its time."""

    records: list[Json]
    unread: list[str]


@dataclass(frozen=True)
class Measurement:
    """One benchmark of one file. `windows_s` are totals of `steps` steps each."""

    tool: str  # a word: the first part of the technique
    family: str  # the second
    case: Mapping[str, int | float | str]
    context: Json
    imported: Json
    clock: str = "host"
    windows_s: tuple[float, ...] = ()
    steps: int = 1
    outcome: str = "ok"
    reason: str = ""
    started_at: str = UNKNOWN
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def case_id(self) -> str:
        """As that of a technique: axis:value pairs joined by a slash."""
        return "/".join(f"{axis}:{value}" for axis, value in self.case.items())


def told_apart(case: Case, seen: dict[str, int]) -> Case:
    """The case, counted where the file has others of the same values before it."""
    count = seen[str(case)] = seen.get(str(case), 0) + 1
    return case | {"again": count} if count > 1 else case


def record_of(one: Measurement, launch: int, launches: int) -> Json:
    """The JSON object of the record; files are launches, counted from 0."""
    made: Json = {
        "schema": SCHEMA,
        "method": f"import {one.tool} {VERSION}",
        "kind": IMPORT,
        "technique": f"{word(one.tool)}/{word(one.family)}",
        "case": dict(one.case),
        "case_id": one.case_id,
        "regime": UNKNOWN,
        "launch": launch,
        "launches": launches,
        "started_at": one.started_at,
        "outcome": one.outcome,
        "context": one.context,
        "notes": dict(one.notes),
        "imported": one.imported,
    }
    if one.outcome != "ok":
        return made | {"reason": one.reason}
    count = len(one.windows_s)
    arm = {
        "name": BENCHMARK,
        "role": "baseline",
        "outcome": "ok",
        "clock": one.clock,
        "steps_per_window": one.steps,
        "windows": {f"{one.clock}_s": list(one.windows_s)},
    }
    return made | {
        "arms": [arm],
        "order": {"blocks": [[0]] * count},
        "stop": {"reason": "imported", "blocks": count},
    }


def word(name: str) -> str:
    """The name as a part of a technique and of a file's name: a to z, digits, underscores.

    One that loses letters ends in a hash, so that two names stay two.
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:LONGEST_NAME]
    if plain == name.lower():
        return plain
    digest = hashlib.sha256(name.encode("utf-8")).hexdigest()[:6]
    return f"{plain}_{digest}" if plain else digest


def require_new(out: Path) -> None:
    """Raises GpuliftError for a folder that holds anything, or that cannot be read or made."""
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise GpuliftError(f"{out}: is there already and not empty; name another folder")
        if out.is_dir() and out.samefile(Path.cwd()):  # a shell would stay in the one it replaces
            raise GpuliftError(f"{out}: is the current folder; name a new one in it")
        if not out.is_dir():  # it can be made
            out.mkdir(parents=True)
            out.rmdir()
    except OSError as error:
        raise write_error(out, error) from None


def write(records: Sequence[Json], out: Path) -> None:
    """The records as the files of a run folder, all of them or none. Raises GpuliftError for a
    folder that holds anything, and for what cannot be written."""
    files: dict[str, list[str]] = {}
    for record in records:
        read_record(record, Path(record["imported"]["file"]))  # it can be read again
        name = f"{record['technique'].replace('/', '.')}.jsonl"
        line = json.dumps(record, separators=(",", ":"), allow_nan=False)
        files.setdefault(name, []).append(line)
    require_new(out)
    try:
        with whole_folder(out.resolve()) as aside:
            for name, lines in files.items():
                (aside / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise write_error(out, error) from None
