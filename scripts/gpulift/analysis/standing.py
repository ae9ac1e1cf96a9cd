"""What speaks against a ratio beside its grade: it decides where a row stands, not whether.

Whatever orders what a reader sees asks here: the first screen of a report, BEGIN.md, the terminal,
`claims`, `show` and `cost`. Withheld is what an erratum calls wrong for these very arms alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpulift.analysis.bounds import HOST, SLEEP, SLEEPS, Bound, bound_of, trained_model
from gpulift.analysis.choice import ADDING_UP
from gpulift.analysis.errata import Erratum
from gpulift.analysis.summary import Worth
from gpulift.engine import quick
from gpulift.records.model import Record

LADDER, JOB = "job/ladder", quick.JOB
LADDERS = (LADDER, JOB)  # each arm has all settings of those before it
ADDED_UP = "settings added up"
KNOWN_ERROR, CONTROL = "known error", "against a control"
HOST_BOUND = "bound by the host"
ONE_LAUNCH, UNEQUAL = "one launch", "another batch"
BEYOND = "beyond 30×"
QUOTABLE = 30.0  # a ratio beyond it, or its inverse, is one of two things that nobody compares


def qualm(row: Worth) -> str:
    """What speaks against this ratio, the first that holds: a control, the host's pace or a sleep,
    several settings, another batch, two things that nobody compares; empty where nothing does."""
    if found := _barred(row.case.measured[0], (row.arm, row.baseline), row.bounds):
        return found
    if row.case.technique in ADDING_UP and _rungs_apart(row) > 1:
        return ADDED_UP
    if _trains_other_batches(row):
        return UNEQUAL
    return "" if 1 / QUOTABLE <= row.speedup.value <= QUOTABLE else BEYOND


def _rungs_apart(row: Worth) -> int:
    names = [arm.name for arm in row.case.first.arms]
    return names.index(row.arm) - names.index(row.baseline)


def _trains_other_batches(row: Worth) -> bool:
    """As many GPUs more do as much more work, and so do calls of a building block; a larger batch
    on as many is another training."""
    ranks = {row.case.arms[arm][0].ranks for arm in (row.arm, row.baseline)}
    return bool(row.pair.per_item and trained_model(row.case.first)) and len(ranks) == 1


def why_not_deciding(
    records: Sequence[Record],
    arms: Sequence[str],
    known: Iterable[Erratum] = (),
    *,
    times: bool = True,
    controls: bool = False,
) -> str:
    """Why a claim about these arms of a case is not decided, which says itself what it compares.
    What is no matter of `times`, as memory, no pace makes wrong. With `controls` the claim asks
    about one."""
    if any(one.withholds(arms) for one in known):
        return KNOWN_ERROR
    bounds = [bound_of(records, arm) for arm in arms] if times else []
    return _barred(records[0], arms, bounds, controls=controls)


def _barred(
    record: Record, arms: Sequence[str], bounds: Sequence[Bound], *, controls: bool = False
) -> str:
    if not controls and any(map(record.is_control, arms)):
        return CONTROL
    if any(one.kind == SLEEP for one in bounds):
        return SLEEPS
    waiting = [arm for arm, one in zip(arms, bounds, strict=False) if one.kind == HOST]
    return HOST_BOUND if any(_asks_of_device(record, arm) for arm in waiting) else ""


def _asks_of_device(record: Record, arm: str) -> bool:
    """Whether the host's pace is none of what is asked about in this arm, be it the baseline, which
    by waiting makes any other one good.

    It is the subject of techniques of launches, and of building blocks that the wall clock judges,
    as copies, allocations and waits; not of whole training steps, whichever clock judges them.
    """
    if record.about_launches:
        return False
    found = record.arm(arm)
    return bool(trained_model(record)) or (found is not None and found.clock == "device")
