"""The rows that --explain CASE names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import TypeVar

from gpulift.errors import USAGE, GpuliftError

NEAR = 5  # names that an error shows

T = TypeVar("T")


def matching(rows: Sequence[T], name: Callable[[T], str], wanted: str) -> list[T]:
    """The rows whose technique/case/arm holds the text. Raises GpuliftError with near matches, or
    where nothing is near with names that there are."""
    if not wanted:
        raise GpuliftError("--explain needs a part of technique/case/arm, and was empty", USAGE)
    found = [row for row in rows if wanted.lower() in name(row).lower()]
    if not found:
        hint = _hint([name(row) for row in rows], wanted)
        raise GpuliftError(f"--explain: no row of the comparison holds {wanted!r}{hint}", USAGE)
    return found


def _hint(names: Sequence[str], wanted: str) -> str:
    near = _near(names, wanted)
    if near:
        return f"; near it: {', '.join(near)}"
    more = f" and {len(names) - NEAR} more" if len(names) > NEAR else ""
    return f"; there are: {', '.join(names[:NEAR])}{more}" if names else ""


def _near(names: Sequence[str], wanted: str) -> list[str]:
    parts = {part: name for name in names for part in (name, *name.split("/"))}
    close = difflib.get_close_matches(wanted, sorted(parts), NEAR, cutoff=0.5)
    return list(dict.fromkeys(parts[part] for part in close))
