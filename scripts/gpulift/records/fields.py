"""Typed access to parsed JSON; what is wrong or missing is named with file, line and key."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from math import isfinite
from typing import Any

from gpulift.errors import RecordError

LARGEST = 2**64  # gpulift-bench counts with 64 bits; its seeds use them all


class Fields:
    """An object of a JSON document, with the place where it stands."""

    def __init__(self, values: Any, place: str, path: str = "") -> None:
        self.place = place
        self.path = path
        if not isinstance(values, dict):
            raise RecordError(f"{place}: {path or 'the line'} must be an object")
        self.values: Mapping[str, Any] = values

    def error(self, key: str, problem: str) -> RecordError:
        """An error about one key."""
        name = f"{self.path}.{key}" if self.path else key
        return RecordError(f"{self.place}: {name} {problem}")

    def has(self, key: str) -> bool:
        """Whether the key is there at all."""
        return key in self.values

    def text(self, key: str, default: str | None = None) -> str:
        """A string; required when there is no default. Equal ones are one object."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "must be a string")
        return sys.intern(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false; required when there is no default."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "must be true or false")
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        """An integer; required when there is no default."""
        value = self.values.get(key, default)
        if type(value) is not int:
            raise self._wrong(key, "must be an integer")
        return value if -LARGEST <= value <= LARGEST else self._counted(key, value)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; required when there is no default."""
        return self._finite(key, self.values.get(key, default))

    def maybe_whole(self, key: str) -> int | None:
        """An integer, or None when the key is absent."""
        return self.whole(key) if key in self.values else None

    def maybe_number(self, key: str) -> float | None:
        """A finite number, or None when the key is absent."""
        return self.number(key) if key in self.values else None

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of finite numbers; empty when the key is absent."""
        return tuple(self._finite(key, value) for value in self._list(key))

    def maybe_numbers(self, key: str) -> tuple[float | None, ...]:
        """A list of finite numbers and nulls; empty when the key is absent."""
        values = self._list(key)
        return tuple(None if value is None else self._finite(key, value) for value in values)

    def wholes(self, key: str) -> tuple[int, ...]:
        """A list of integers; empty when the key is absent."""
        values = self._list(key)
        if any(isinstance(value, bool) or not isinstance(value, int) for value in values):
            raise self.error(key, "must be a list of integers")
        return tuple(self._counted(key, value) for value in values)

    def rows(self, key: str) -> tuple[tuple[int, ...], ...]:
        """A list of lists of integers; empty when the key is absent."""
        rows = {str(i): row for i, row in enumerate(self._list(key))}
        inner = Fields(rows, self.place, self._name(key))
        return tuple(inner.wholes(row) for row in rows)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when the key is absent."""
        values = self._list(key)
        if not all(isinstance(value, str) for value in values):
            raise self.error(key, "must be a list of strings")
        return tuple(values)

    def child(self, key: str) -> Fields:
        """An object inside this one; required."""
        if key not in self.values:
            raise self.error(key, "is missing")
        return Fields(self.values[key], self.place, self._name(key))

    def maybe_child(self, key: str) -> Fields | None:
        """An object inside this one, or None when the key is absent."""
        return self.child(key) if key in self.values else None

    def children(self, key: str) -> list[Fields]:
        """A list of objects; empty when the key is absent."""
        name = self._name(key)
        return [Fields(v, self.place, f"{name}[{i}]") for i, v in enumerate(self._list(key))]

    def texts_by_key(self, key: str) -> Mapping[str, str]:
        """An object whose values are strings; empty when absent."""
        inner = self.maybe_child(key)
        return {name: inner.text(name) for name in inner.values} if inner else {}

    def numbers_by_key(self, key: str) -> Mapping[str, float]:
        """An object whose values are numbers; empty when absent."""
        inner = self.maybe_child(key)
        return {name: inner.number(name) for name in inner.values} if inner else {}

    def _name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _wrong(self, key: str, problem: str) -> RecordError:
        return self.error(key, problem if key in self.values else "is missing")

    def _list(self, key: str) -> list[Any]:
        values = self.values.get(key, [])
        if not isinstance(values, list):
            raise self.error(key, "must be a list")
        return values

    def _counted(self, key: str, value: int) -> int:
        if abs(value) > LARGEST:
            raise self.error(key, "is too large a number")
        return value

    def _finite(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "must be a number")
        try:
            number = float(value)
        except OverflowError:
            raise self.error(key, "is too large a number") from None
        if not isfinite(number):
            raise self.error(key, "must be finite")
        return number
