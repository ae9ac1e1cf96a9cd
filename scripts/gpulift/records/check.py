"""Checks results before they are committed: schema, folder names, and nothing private in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpulift.errors import GpuliftError, RecordError
from gpulift.records.model import Record
from gpulift.records.read import read_file, run_folders
from gpulift.reference.entries import read_reference

MAX_FILE_BYTES = 4_000_000
FOLDER = re.compile(r"(\d{4}-\d\d-\d\d)-([0-9a-f]{7,40})(-dirty)?(-\d+)?")
PRIVATE = (
    ("a path", re.compile(r"(?:^|[\s\"'=(,;:])(?:~|/[\w.-]+)/[\w.-]+|\b[A-Za-z]:\\")),
    ("a path", re.compile(r"(?:^|[\s\"'=(,;:])/(?:home|root|tmp|usr|var|opt|mnt|data)\b")),
    ("a host name", re.compile(r"\b[\w-]+\.(?:local|localdomain|internal|lan|corp|com|net)\b")),
    ("an account", re.compile(r"\b[\w.-]+@[\w-]+")),
    ("a device's UUID", re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-")),
)


def check_results(results: Sequence[Path], schema: Path) -> tuple[int, list[str]]:
    """How many records were checked, and every complaint about them, one line each."""
    for above in results:
        if not above.is_dir():
            raise GpuliftError(f"{above}: there is no such folder")
    validator = _validator(schema)
    complaints: list[str] = []
    ids: dict[str, str] = {}
    count = 0
    for folder in (folder for above in results for folder in run_folders(above)):
        records: list[Record] = []
        for file in sorted(folder.glob("*.jsonl")):
            records += _check_file(file, validator, complaints)
        complaints += _folder_complaints(folder, records)
        for record in records:
            place = f"{record.file}:{record.line}"
            if record.id in ids:
                complaints.append(f"{place}: the same record as {ids[record.id]}")
            ids.setdefault(record.id, place)
        count += len(records)
    for file in (file for above in results for file in above.glob("reference/*.json")):
        read_reference(file)
    return count, complaints


def private_strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(where and what) of every string that looks like a path, a host, an account or a UUID."""
    if isinstance(value, str):
        for meaning, pattern in PRIVATE:
            if pattern.search(re.sub(r"https?://\S+", "", value)):
                yield key, meaning
                return
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from private_strings(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            yield from private_strings(inner, key)


def _validator(schema: Path) -> Any:
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        raise GpuliftError("check needs the Python package jsonschema: pip install it") from None
    try:
        return Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise GpuliftError(f"{schema}: cannot be read: {error}") from None


def _check_file(file: Path, validator: Any, complaints: list[str]) -> list[Record]:
    if file.stat().st_size >= MAX_FILE_BYTES:
        complaints.append(f"{file}: larger than {MAX_FILE_BYTES / 1e6:.0f} MB")
    try:
        content = read_file(file)
    except RecordError as error:
        complaints.append(str(error))
        return []
    complaints += content.warnings
    for record in content.records:
        complaints += [
            f"{file}:{record.line}: {complaint}" for complaint in _complaints(record, validator)
        ]
    return list(content.records)


def _complaints(record: Record, validator: Any) -> Iterator[str]:
    for error in validator.iter_errors(record.raw):
        where = ".".join(str(part) for part in error.absolute_path) or "the record"
        # jsonschema puts the value first and what is wrong with it last.
        yield f"{where}: {error.message if len(error.message) < 200 else error.message[-100:]}"
    for key, meaning in private_strings(dict(record.raw)):
        yield f"{key} looks like {meaning}"
    if record.context.build.dirty:
        yield "was built from uncommitted changes"
    if record.file.name != f"{record.technique.replace('/', '.')}.jsonl":
        yield f"{record.technique} does not belong in a file of this name"


def _folder_complaints(folder: Path, records: Sequence[Record]) -> Iterator[str]:
    named = FOLDER.fullmatch(folder.name)
    if named is None:
        yield f"{folder}: the name must be <date>-<commit>[-n]"
        return
    if not records:
        return
    date, commit, dirty = named.group(1), named.group(2), named.group(3)
    first = min(record.started_at for record in records)
    if not first.startswith(date):
        yield f"{folder}: the first record is of {first[:10]}, the folder of {date}"
    if dirty:
        yield f"{folder}: holds a run of uncommitted changes"
    commits = {record.context.build.commit for record in records}
    if any(not made.startswith(commit) for made in commits):
        yield f"{folder}: holds records of commit {', '.join(sorted(commits))}"
    slugs = {record.context.slug for record in records}
    if slugs != {folder.parent.name}:
        yield f"{folder}: holds records of {', '.join(sorted(slugs))}"
    if len({_writer(record) for record in records}) > 1:
        yield f"{folder}: holds records of more than one card, build or set of options"


def _writer(record: Record) -> str:
    """What all records of a run have in common."""
    context = record.raw["context"]
    parts = [context.get(key) for key in ("gpu", "driver", "build", "host", "options")]
    return json.dumps(parts, sort_keys=True)
