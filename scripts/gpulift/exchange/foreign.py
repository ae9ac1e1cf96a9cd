"""Reads the JSON file of another tool, with errors that say file and position."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulift.errors import GpuliftError, RecordError
from gpulift.records.fields import Fields
from gpulift.text import visible


@dataclass(frozen=True)
class ForeignFile:
    """A file, its top object, and how errors call it."""

    path: Path
    fields: Fields

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


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise GpuliftError(f"{visible(str(path))}: cannot be read: {error.strerror}") from None


def _parse(data: bytes, place: str) -> Fields:
    """A number that JSON has no room for, as NaN, is kept as the text that it was written with."""

    def number(digits: str) -> float | str:
        value = float(digits)
        return value if math.isfinite(value) else digits

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise RecordError(f"{place}: {visible(twice)!r} is there twice in one object")
        return found

    try:
        text = data.decode("utf-8-sig")
        raw = json.loads(text, parse_constant=str, parse_float=number, object_pairs_hook=unique)
        json.dumps(raw, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"{place}: byte {error.start} is not UTF-8") from None
    except UnicodeEncodeError:
        raise RecordError(f"{place}: holds text that cannot be written as UTF-8") from None
    except json.JSONDecodeError as error:
        cut = "; it may be cut off" if error.pos >= len(text.rstrip()) else ""
        raise RecordError(
            f"{place}:{error.lineno}:{error.colno}: not JSON: {error.msg}{cut}"
        ) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or [[[[[...
        raise RecordError(f"{place}: not JSON that can be read: {error}") from None
    if not isinstance(raw, dict):
        raise RecordError(f"{place}: the file must hold an object")
    return Fields(raw, place)
