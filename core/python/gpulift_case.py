"""What the engine tells an arm of its case beyond what `make` gets, and the parts of its time that
the arm tells the engine. gpulift_worker.py has all of it under the same names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

PARTS = ("reference", "compile")  # of a check's time


@dataclass
class _Case:
    """Of a first launch that nobody asked for, until begin() is called."""

    launch: int = 1
    check_seed: int = 0
    earlier: Mapping[str, float] | None = None
    shared: Path | None = None
    spent_s: dict[str, float] = field(default_factory=dict)
    inner_s: float = 0.0  # of what ended within the part that runs now


_case = _Case()


def begin(question: Mapping[str, Any]) -> None:
    """From now on all below is of the case that this question asks for. What it does not say, as of
    an engine that is older, is as in a first launch."""
    global _case
    shared = question.get("shared")
    folder = None if shared is None else Path(shared)
    _case = _Case(
        launch=question.get("launch", 1),
        check_seed=question.get("check_seed", question["seed"]),
        earlier=question.get("earlier"),
        # A rank on another host has no such folder.
        shared=folder if folder is not None and folder.is_dir() else None,
    )


def launch() -> int:
    """The number of this launch of the case, from 1."""
    return _case.launch


def check_seed() -> int:
    """The seed of the case's first launch. The seed that `make` gets is another in each launch:
    what a check compares between launches comes of this one."""
    return _case.check_seed


def earlier() -> Mapping[str, float] | None:
    """The metrics of this arm in the first launch of the run in which its case was ok, as its
    record has them; None where there was none, so that everything has to be checked whole."""
    return _case.earlier


def shared() -> Path | None:
    """A folder in shared memory that all arms and ranks of this case have in this launch; removed
    with all that is in it at its end, and empty at its begin. None where it cannot be made, or a
    rank is on another host. How much fits is for its user to see: an arm must do without."""
    return _case.shared


@contextlib.contextmanager
def spent(part: str) -> Iterator[None]:
    """Counts the time within as that of "reference" or "compile" in the record's `time_s`, less
    what a part within it counts. What it hands to a device must be waited for within. Raises
    ValueError for another part."""
    if part not in PARTS:
        raise ValueError(f"{part!r} is no part of a check's time: {', '.join(PARTS)}")
    case = _case
    outer_s, case.inner_s = case.inner_s, 0.0
    start_s = monotonic()
    try:
        yield
    finally:
        taken_s = monotonic() - start_s
        case.spent_s[part] = case.spent_s.get(part, 0.0) + taken_s - case.inner_s
        case.inner_s = outer_s + taken_s


def spent_s() -> dict[str, float]:
    """Seconds of each part that there was."""
    return dict(_case.spent_s)
