"""Reads a JSON object into a dataclass, strictly: each field is there, and no other key is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gpulift.records.fields import Fields

SIGNED = {"signed": True}  # metadata of a field whose numbers may be below 0

Made = TypeVar("Made")

READERS: Mapping[Any, Callable[[Fields, str], Any]] = {
    str: Fields.text,
    bool: Fields.flag,
    int: Fields.whole,
    float: Fields.number,
    tuple[str, ...]: Fields.texts,
    tuple[int, ...]: Fields.wholes,
    tuple[float, ...]: Fields.numbers,
    Mapping[str, str]: Fields.texts_by_key,
    Mapping[str, float]: Fields.numbers_by_key,
}


def read(made: type[Made], fields: Fields) -> Made:
    """An object of that dataclass. Throws RecordError, with the field, for anything else."""
    hints = get_type_hints(made)
    known = {field.name: field for field in dataclasses.fields(made)}  # type: ignore[arg-type]
    for key in fields.values:
        if key not in known:
            raise fields.error(key, "is not a known field")
    values = {}
    for name, field in known.items():
        if not fields.has(name):
            raise fields.error(name, "is missing")
        values[name] = _value(hints[name], fields, name)
        if not field.metadata.get("signed") and any(one < 0 for one in _numbers(values[name])):
            raise fields.error(name, "must not be negative")
    return made(**values)


def _value(hint: Any, fields: Fields, name: str) -> Any:
    reader = READERS.get(hint)
    if reader is not None:
        return reader(fields, name)
    if get_origin(hint) is tuple:
        return tuple(read(get_args(hint)[0], inner) for inner in fields.children(name))
    return read(hint, fields.child(name))


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, tuple):
        yield from (one for one in value if isinstance(one, int | float))
    elif isinstance(value, Mapping):
        yield from (one for one in value.values() if isinstance(one, int | float))
