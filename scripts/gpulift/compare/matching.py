"""The rows, or the checks, that --explain names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpulift.errors import USAGE, GpuliftError

NEAR = 5  # names that an error shows

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """What errors call the rows, and what their names are made of."""

    noun: str = "row of the comparison"
    names: str = "technique/case/arm"


COMPARED = Kind()


def require_part(wanted: str, kind: Kind = COMPARED) -> None:
    """Raises GpuliftError for a text that every name holds: it is known before measuring."""
    if not wanted:
        raise GpuliftError(f"--explain needs a part of {kind.names}, and was empty", USAGE)


def matching(
    rows: Sequence[T], name: Callable[[T], str], wanted: str, kind: Kind = COMPARED
) -> list[T]:
    """The rows whose name holds the text. Raises GpuliftError with near matches, or where nothing
    is near with names that there are."""
    require_part(wanted, kind)
    found = [row for row in rows if wanted.lower() in name(row).lower()]
    if not found:
        hint = _hint([name(row) for row in rows], wanted)
        raise GpuliftError(f"--explain: no {kind.noun} holds {wanted!r}{hint}", USAGE)
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
