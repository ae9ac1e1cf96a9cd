"""Further looks at what a run left open: fresh launches of these cases alone.

A look is taken at fixed numbers of launches, and the intervals are wide enough for all of them
(`checks.LOOKS`), so that looking again makes no false verdict more likely.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpulift.analysis.machine.checks import LOOKS, decided_by_launches
from gpulift.analysis.machine.results import CheckResult
from gpulift.engine import machine, measuring, quick
from gpulift.engine.quick import Row
from gpulift.ground.errors import FAILED, INTERRUPTED, OK
from gpulift.ground.text import counted
from gpulift.verdicts.cases import Case

Judge = Callable[[Path], Sequence[CheckResult]]


@dataclass(frozen=True)
class Again:
    """A case with open checks, and how many seconds the launches that it lacks will take."""

    case: Case
    checks: int
    decides: bool
    seconds: float

    @property
    def rows(self) -> tuple[Row, ...]:
        """All that was measured of it: an arm is as fast as beside the others."""
        arms = [arm.name for arm in self.case.first.arms if arm.outcome == "ok"]
        return tuple((self.case.technique, self.case.case_id, arm) for arm in arms)


def measure(
    folder: Path,
    options: measuring.Options,
    judge: Judge,
    ends_s: float,
    say: measuring.Say,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Measures until all is decided, looked at often enough, or `clock` is at `ends_s`; the exit
    code of the worst round."""
    worst = OK
    for look in LOOKS[1:]:
        cases = open_cases(judge(folder), look)
        chosen = within(cases, ends_s - clock())
        if cases:
            say(_told(cases, chosen, look))
        if not chosen:
            return worst
        asked = replace(options, rows=tuple(r for one in chosen for r in one.rows), launches=look)
        measuring.write_rows(folder, asked.rows)
        code = machine.measure(machine.find_bench(), asked.flags(folder), ends_s - clock())
        if code == INTERRUPTED and clock() >= ends_s:
            return worst  # the launches that ended in time are kept
        if code not in measuring.FINISHED:
            return code
        worst = FAILED if FAILED in (code, worst) else OK
    return worst


def open_cases(results: Sequence[CheckResult], look: int) -> list[Again]:
    """The cases that lack launches for this look at an open check: those that decide first, then
    those that tell most per second."""
    checks: dict[tuple[str, str], list[CheckResult]] = {}
    for result in results:
        if result.check and decided_by_launches(result):
            case = result.check.case
            checks.setdefault((case.technique, case.case_id), []).append(result)
    lacking = [case for case in (_again(own, look) for own in checks.values()) if case.seconds > 0]
    return sorted(lacking, key=lambda case: (not case.decides, case.seconds / case.checks))


def within(cases: Sequence[Again], seconds: float) -> list[Again]:
    """Those that end in time, in their order."""
    chosen = []
    for one in cases:
        if one.seconds <= seconds:
            seconds -= one.seconds
            chosen.append(one)
    return chosen


def _again(checks: Sequence[CheckResult], look: int) -> Again:
    case = next(one.check.case for one in checks if one.check)
    latest = case.records[-1]
    once = len(case.records) < latest.launches  # with --quick, of a case whose launches are long
    lacking = 0 if once else max(0, look - len(case.records))
    launch_s = latest.time_s.get("total", 0.0) or quick.ARM_S * len(latest.arms)
    decides = any(one.id.startswith("roof/") for one in checks)
    return Again(case, len(checks), decides, lacking * launch_s)


def _told(cases: Sequence[Again], chosen: Sequence[Again], look: int) -> str:
    """What is open, and what becomes of it."""
    checks = counted(sum(one.checks for one in cases), "check")
    if not chosen:
        return f"{checks} open, and no time to measure them again: a longer --quick has it"
    names = ", ".join(f"{one.case.technique}/{one.case.case_id}" for one in chosen)
    left = len(cases) - len(chosen)
    more = f"; no time for {counted(left, 'further case')}" if left else ""
    return f"{checks} open: measured again, {look} launches in all: {names}{more}"
