"""Reads the JSON file of another tool, with errors that say file and position."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gpulift.ground.errors import GpuliftError, RecordError
from gpulift.ground.text import json_problem, visible
from gpulift.records.decode import converted

Made = TypeVar("Made")


class Doubled(dict[str, Any]):
    """What stands for the value of a key that an object has twice: no text and no number."""


@dataclass(frozen=True)
class Part:
    """An object of a file, and how errors call the file and it; the top one has no key."""

    values: Mapping[str, Any]
    place: str
    key: str = ""

    def read(self, kind: type[Made]) -> Made:
        """What is needed of it. Raises RecordError, with file and key, where it is not there."""
        return converted(self.values, kind, self.place, self.key)

    def error(self, key: str, problem: str) -> RecordError:
        """An error about one key."""
        return RecordError(f"{self.place}: {self.key_of(key)} {problem}")

    def key_of(self, key: str) -> str:
        """The whole key."""
        return f"{self.key}.{key}".lstrip(".")


@dataclass(frozen=True)
class ForeignFile:
    """A file and its top object."""

    path: Path
    top: Part

    @property
    def name(self) -> str:
        """The file's name without its folder, which would tell who keeps it where."""
        return visible(self.path.name)


def read_files(paths: Sequence[Path]) -> list[ForeignFile]:
    """All files, each of them once: a process that is given twice would pass for two launches."""
    found: list[ForeignFile] = []
    seen: dict[str, Path] = {}
    for path in paths:
        data = _bytes(path)
        first = seen.setdefault(hashlib.sha256(data).hexdigest(), path)
        if first is not path:
            raise GpuliftError(
                f"{visible(str(path))}: holds the same as {visible(str(first))}: a launch counts"
                " once, so name each file once"
            )
        found.append(ForeignFile(path, _parse(data, visible(str(path)))))
    return found


@contextmanager
def listing(unread: list[str], name: str = "") -> Iterator[None]:
    """What cannot be read inside is listed with its reason, and with its name where that is known;
    the rest of the file is read."""
    try:
        yield
    except RecordError as error:
        unread.append(f"{error} ({visible(name)})" if name else str(error))


def rows_of(part: Part, key: str, unread: list[str]) -> list[Part]:
    """The objects of a list. What is no object, or cannot be written again, is listed."""
    values = part.values.get(key)
    if not isinstance(values, list):
        raise part.error(key, "must be a list")
    found = []
    for index, value in enumerate(values):
        row = Part(value, part.place, f"{part.key_of(key)}[{index}]")
        with listing(unread, _name(value)):
            for name, inner in row.read(dict).items():
                if isinstance(inner, Doubled):
                    raise row.error(name, "is there twice")
            _require_writable(row.values, f"{row.place}: {row.key}")
            found.append(row)
    return found


def _name(row: Any) -> str:
    name = row.get("name") if isinstance(row, dict) else None
    return name if isinstance(name, str) else ""


def rest_of(part: Part, rows: str) -> dict[str, Any]:
    """All that is not rows, word for word."""
    rest = {key: value for key, value in part.values.items() if key != rows}
    _require_writable(rest, part.place)
    return rest


def _require_writable(values: Any, place: str) -> None:
    try:
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise RecordError(f"{place}: holds text that cannot be written as UTF-8") from None
    except RecursionError:
        raise RecordError(f"{place}: is nested too deeply") from None


def reason_of(error: RecordError, file: ForeignFile) -> str:
    """What is wrong, for a record: without the file's folder, which would tell who keeps it
    where."""
    return str(error).removeprefix(f"{file.top.place}: ")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise GpuliftError(f"{visible(str(path))}: cannot be read: {error.strerror}") from None


def _parse(data: bytes, place: str) -> Part:
    """A number that JSON has no room for, as NaN, is kept as the text that it was written with.

    What is wrong inside of a row is left to its reader, as is text that is not UTF-8.
    """

    def number(digits: str) -> float | str:
        value = float(digits)
        return value if math.isfinite(value) else digits

    def doubled(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            found[name] = Doubled(values=[found[name], value]) if name in found else value
        return found

    try:
        text = data.decode("utf-8-sig", "surrogateescape")
        raw = json.JSONDecoder(
            strict=False, parse_constant=str, parse_float=number, object_pairs_hook=doubled
        ).decode(text)
    except json.JSONDecodeError as error:
        _require_utf8(data, place)
        ended = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        cut = "; it may be cut off" if ended else ""
        raise RecordError(
            f"{place}:{error.lineno}:{error.colno}: not JSON: {json_problem(error)}{cut}"
        ) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or [[[[[...
        raise RecordError(f"{place}: not JSON that can be read: {error}") from None
    if not isinstance(raw, dict):
        raise RecordError(f"{place}: the file must hold an object")
    for name, value in raw.items():
        if isinstance(value, Doubled):
            raise RecordError(f"{place}: {visible(name)!r} is there twice in one object")
    return Part(raw, place)


def _require_utf8(data: bytes, place: str) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"{place}: byte {error.start} is not UTF-8") from None
