"""The rows, or the checks, that --explain names, and the records that a filter selects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gpulift.engine import machine
from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.ground.near import NEAR, near, near_filter
from gpulift.records.model import Record
from gpulift.records.read import Run

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """What errors call the rows, and what their names are made of."""

    noun: str = "row of the comparison"
    names: str = "technique/case/arm"


COMPARED = Kind()


def selected(runs: Sequence[Run], filter: str | None) -> list[Run]:
    """The records of cases of which the filter selects an arm, as `run` selects, with all of their
    arms, since these are held against each other. Raises GpuliftError where there are none."""
    if filter is None:
        return list(runs)
    matches = machine.matcher(filter)
    kept = [
        replace(run, records=tuple(one for one in run.records if _selects(matches, one)))
        for run in runs
    ]
    found = [run for run in kept if run.records]
    if runs and not found:
        names = dict.fromkeys(
            name
            for run in runs
            for one in run.records
            for name in (one.technique, *(arm.name for arm in one.arms))
        )
        close = near_filter(filter, names)
        hint = f"; near it: {', '.join(close)}" if close else ""
        raise GpuliftError(f"no case of the records matches the filter {filter!r}{hint}", USAGE)
    return found


def names_of(technique: str, case_id: str, arm: str) -> tuple[str, ...]:
    """What a filter looks at, of a case without an arm its own name last."""
    case = "/".join(part for part in (technique, case_id) if part)
    return (technique, case, f"{case}/{arm}") if arm else (technique, case)


def _selects(matches: Callable[..., bool], record: Record) -> bool:
    arms = [arm.name for arm in record.arms] or [""]
    return any(matches(*names_of(record.technique, record.case_id, arm)) for arm in arms)


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
    if found := near(wanted, names):
        return f"; near it: {', '.join(found)}"
    more = f" and {len(names) - NEAR} more" if len(names) > NEAR else ""
    return f"; there are: {', '.join(names[:NEAR])}{more}" if names else ""
