"""Turns JSON and TOML into typed values by msgspec; what is wrong or missing is named."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from msgspec import MsgspecError, ValidationError, convert
from msgspec.json import decode as decode_json

from gpulift.ground.errors import RecordError

Made = TypeVar("Made")
SPACES = (b" :", b"\t", b"\r", b"\n:")  # tabs and returns of texts are escaped


class NotJsonError(RecordError):
    """A line that is no JSON at all, as one is that was cut off."""


def parse_line(line: bytes, place: str) -> Mapping[str, Any]:
    """The JSON object of one line; NaN, infinity and a key that is there twice are refused."""
    quickly = _faultless(line)
    return _parsed(line, place) if quickly is None else quickly


def parse_again(line: bytes) -> Mapping[str, Any]:
    """The object of a line that was accepted before, which is not looked through again."""
    try:
        raw: Mapping[str, Any] = decode_json(line)
    except (MsgspecError, RecursionError):
        return _parsed(line, "a line that was read before")
    return raw


def _faultless(line: bytes) -> Mapping[str, Any] | None:
    """The same where nothing can be wrong, in a third of the time; None where that is not sure.

    The quick reader takes the last of two equal keys. So every `":` of the line has to be one of
    the keys that it read, and no key may be written with a space behind it, which is no `":`.
    """
    try:
        raw = decode_json(line)
    except (MsgspecError, ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or any(space in line for space in SPACES):
        return None
    return raw if _keys(raw) == line.count(b'":') else None


def _keys(value: dict[str, Any]) -> int:
    """How many keys it has, without those of lists that begin with a number or a text."""
    count = 0
    parts: list[Any] = [value]
    for part in parts:  # it grows meanwhile
        if type(part) is dict:
            count += len(part)
            parts += part.values()
        elif type(part) is list and part and type(part[0]) in (dict, list):
            parts += part
    return count


def _parsed(line: bytes, place: str) -> Mapping[str, Any]:
    """The same of any line, with what is wrong."""

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
        raise _not_writable(place) from None


def _not_writable(place: str) -> RecordError:
    return RecordError(f"{place}: holds text that cannot be written as UTF-8")


def decoded(content: bytes, kind: type[Made], place: str, *, closed: bool = False) -> Made:
    """The object of JSON as that kind, as `converted` makes it."""
    return converted(parse_line(content, place), kind, place, closed=closed)


def converted(
    raw: Any, kind: type[Made], place: str, within: str = "", *, closed: bool = False
) -> Made:
    """The object as that kind. Raises RecordError with the place and the key of what is wrong;
    `within` is the key of the object itself. A closed kind has no other key than its fields."""
    try:
        made = convert(raw, kind)
        unknown = next(_unknown(made, raw, within), None) if closed else None
    except ValidationError as error:
        problem = _with_key(raw, kind, str(error))
        raise RecordError(f"{place}: {_worded(problem, within)}") from None
    except UnicodeEncodeError:
        raise _not_writable(place) from None
    except RecursionError:
        raise RecordError(f"{place}: is nested too deeply") from None
    if unknown is not None:
        raise RecordError(f"{place}: {unknown.lstrip('.')} is not known here")
    return made


def _with_key(raw: Any, kind: type[Made], problem: str) -> str:
    """Of an entry in a mapping msgspec says `[...]`: its key is that of the first entry that is as
    wrong alone."""
    before, hidden, after = problem.partition("[...]")
    if not hidden:
        return problem
    try:
        held = raw = deepcopy(raw)
    except RecursionError:  # the key of what is nested so deeply is left out
        return problem
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", before.partition(" - at `$")[2]):
        held = held[name] if name else held[int(index)]
    for key, value in dict(held).items():
        held.clear()
        held[key] = value
        try:
            convert(raw, kind)
        except ValidationError as error:
            if str(error) == problem:
                return f"{before}.{key}{after}"
    return problem


def _unknown(made: Any, raw: Any, path: str) -> Iterator[str]:
    """The keys that no field has; msgspec forbids them in its own classes, not in dataclasses."""
    if is_dataclass(made):
        known = {field.name for field in fields(made)}
        yield from (f"{path}.{key}" for key in raw if key not in known)
        inner = [(f".{key}", getattr(made, key), raw[key]) for key in raw if key in known]
    elif isinstance(made, Mapping):
        inner = [(f".{key}", made[key], raw[key]) for key in made]
    elif isinstance(made, tuple):
        inner = [(f"[{index}]", one, raw[index]) for index, one in enumerate(made)]
    else:
        inner = []
    for key, value, of in inner:
        yield from _unknown(value, of, path + key)


def _worded(problem: str, within: str) -> str:
    """`launch must be int, not str` of what msgspec says of it."""
    problem, _, key = problem.partition(" - at `$")
    key = (within + key.rstrip("`")).lstrip(".") or "the line"
    if lacking := re.fullmatch("Object missing required field `(.+)`", problem):
        return f"{key}.{lacking[1]} is missing".removeprefix("the line.")
    if names := re.fullmatch(r"Expected `str` matching regex '\^\((.+)\)\\\\Z'", problem):
        return f"{key} must be one of {', '.join(filter(None, names[1].split('|')))}"
    if problem == "Expected `str` of length >= 1":
        return f"{key} must not be empty"
    wanted, _, seen = problem.removeprefix("Expected ").replace("`", "").partition(", got ")
    if not problem.startswith("Expected "):
        return f"{key}: {problem}".removeprefix("the line: ")
    return f"{key} must be {wanted}, not {seen}" if seen else f"{key} must be {wanted}"
