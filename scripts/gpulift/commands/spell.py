"""A run case by case, each whole before the next begins, as many as a spell has time for; what it
takes is known beforehand from records."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpulift.analysis import lacking
from gpulift.analysis.costs import Cost, Costs
from gpulift.analysis.lacking import CaseName, Fills
from gpulift.commands import run_further
from gpulift.engine import machine, measuring, quick
from gpulift.engine.machine import TechniqueInfo
from gpulift.engine.quick import Row
from gpulift.ground.errors import FAILED, INTERRUPTED, OK, GpuliftError
from gpulift.ground.text import counted
from gpulift.records.files import WRITTEN
from gpulift.records.model import Record
from gpulift.records.read import read_file
from gpulift.verdicts.cases import TECHNIQUE

KEPT_S = 60.0  # of a spell: what by plan would end in it is not begun
WRITING_S = 15.0  # of it: what still measures is interrupted, so that all is written in time
MOST_NAMED = 6
Clock = Callable[[], float]


@dataclass(frozen=True)
class Step:
    """A case with the arms to measure, what a launch takes, and what it would fill."""

    technique: str
    case: str
    arms: tuple[str, ...]
    launches: int
    cost: Cost | None = None
    fills: str = ""
    further: bool = True  # launches that a wide interval asks for

    @property
    def name(self) -> str:
        """Of the case."""
        return "/".join(filter(None, (self.technique, self.case)))

    @property
    def rows(self) -> tuple[Row, ...]:
        """As gpulift-bench is told them."""
        return tuple((self.technique, self.case, arm) for arm in self.arms)

    def seconds(self, launches: int) -> float | None:
        """Of so many launches; None where no record tells."""
        return None if self.cost is None else launches * self.cost.launch_s

    def lacks(self, records: Sequence[Record]) -> tuple[int, int]:
        """How many launches are there, and how many it is to have then: as many where it is whole.
        One that did not end well has the same end again."""
        there = len(records)
        if any(one.outcome != "ok" for one in records):
            return there, there
        if self.further and run_further.wide_cases(records):
            return there, run_further.LAUNCHES
        return there, max(self.launches, there)


class Progress:
    """What of these cases is in a folder."""

    def __init__(self, folder: Path | None, steps: Sequence[Step]) -> None:
        self.folder = folder
        self.steps = steps
        self._there: dict[CaseName, dict[int, Record]] = {}
        for technique in {one.technique for one in steps}:
            self.read(technique)

    def read(self, technique: str) -> None:
        """What is there now; of records of the same launch the last one counts."""
        file = self.folder and self.folder / f"{technique.replace('/', '.')}{WRITTEN}"
        for one in read_file(file).records if file and file.is_file() else ():
            if one.kind == TECHNIQUE:
                self._there.setdefault((technique, one.case_id), {})[one.launch] = one

    def of(self, step: Step) -> tuple[int, int]:
        """Launches that are there, and that it is to have."""
        return step.lacks(list(self._there.get((step.technique, step.case), {}).values()))

    @property
    def left(self) -> list[tuple[Step, int]]:
        """The cases that lack launches, and how many."""
        each = ((step, self.of(step)) for step in self.steps)
        return [(step, wanted - there) for step, (there, wanted) in each if there < wanted]


def steps_of(
    techniques: Iterable[TechniqueInfo],
    options: measuring.Options,
    costs: Costs,
    model: str,
    worth: Mapping[CaseName, Fills] | None = None,
) -> list[Step]:
    """The cases that the filter selects: of those that are worth it in that order, the shortest
    first of those that bring no more than launches, or else all as they are listed; what no record
    tells the cost of comes last, in either."""
    matches = machine.matcher(options.filter)
    found = {
        (info.id, case.id): arms
        for info in techniques
        for case in info.cases
        if (arms := quick.arms_of(info, case, matches))
    }
    order = found if worth is None else [name for name in worth if name in found]
    steps = [
        Step(
            *name,
            found[name],
            options.launches or quick.LAUNCHES,
            costs.launch(*name, len(found[name]), model),
            lacking.told(worth[name]) if worth else "",
            options.launches is None,
        )
        for name in order
    ]

    def rank(step: Step) -> tuple[bool, float]:
        launches_alone = worth and worth[step.technique, step.case].keys() == {lacking.LAUNCHES}
        return step.cost is None, step.cost.launch_s if launches_alone and step.cost else 0.0

    return sorted(steps, key=rank)


def measure(
    folder: Path,
    steps: Sequence[Step],
    options: measuring.Options,
    ends_s: float,
    say: measuring.Say,
    clock: Clock = time.monotonic,
) -> tuple[int, bool]:
    """Measures until `clock` is at `ends_s`, infinity without a limit; the exit code, and whether
    all is there. Says what is left."""
    progress, code = Progress(folder, steps), OK
    if progress.left and not any(_fits(*one, ends_s - KEPT_S - clock()) for one in progress.left):
        raise GpuliftError(_too_short(progress.left))
    try:
        for step, _ in progress.left:
            ended = _whole(progress, step, options, ends_s, clock, say)
            code = FAILED if ended is None else ended
            if ended not in measuring.FINISHED:
                break
    except KeyboardInterrupt:  # between two cases
        code = INTERRUPTED
    left = progress.left
    say(f"whole: {len(steps) - len(left)} of {counted(len(steps), 'case')}")
    if left:
        say(f"left: {_told(left)}; the same command goes on")
    return code, not left


def _whole(
    progress: Progress,
    step: Step,
    options: measuring.Options,
    ends_s: float,
    clock: Clock,
    say: measuring.Say,
) -> int | None:
    """The exit code of a case that was measured until it was whole, or that there is no time for;
    None where nothing was recorded, as on a full disk."""
    code = OK
    while (before := progress.of(step))[0] < before[1]:
        there, wanted = before
        if not _fits(step, wanted - there, ends_s - KEPT_S - clock()):
            break
        more = wanted if wanted > step.launches else options.launches
        asked = replace(options, rows=step.rows, launches=more)
        measuring.write_rows(folder := progress.folder or Path(), asked.rows)
        limit_s = ends_s - WRITING_S - clock()
        code = machine.measure(machine.find_bench(), asked.flags(folder), limit_s)
        progress.read(step.technique)
        if code == INTERRUPTED and clock() >= ends_s - WRITING_S:
            say(f"{step.name} takes longer than planned: interrupted, its whole launches are kept")
            return OK
        if code not in measuring.FINISHED:
            return code
        if progress.of(step)[0] == there:
            say(f"{step.name}: nothing was recorded")
            return None
    return code


def _fits(step: Step, launches: int, left_s: float) -> bool:
    return left_s > 0 and (step.seconds(launches) or 0.0) <= left_s


def _told(left: Sequence[tuple[Step, int]]) -> str:
    """How many cases, how many seconds, and the first ones' names."""
    each = [(step.name, step.seconds(launches)) for step, launches in left]
    told = [f"{name} {_shown(seconds)}" for name, seconds in each[:MOST_NAMED]]
    more = len(left) - MOST_NAMED
    told += [f"{more} more"] if more > 0 else []
    return f"{counted(len(left), 'case')}, {_sum([one for _, one in each])}: {', '.join(told)}"


def _too_short(left: Sequence[tuple[Step, int]]) -> str:
    known = [seconds for step, launches in left if (seconds := step.seconds(launches)) is not None]
    needs = math.ceil(min(known, default=0.0) + KEPT_S) + 1
    return f"--within: too short for any case; {needs}s has time for the shortest that is left"


def _shown(seconds: float | None) -> str:
    return "? s" if seconds is None else f"{seconds:,.0f} s"


def _sum(seconds: Sequence[float | None]) -> str:
    told = f"{sum(one for one in seconds if one is not None):,.0f} s"
    unknown = sum(one is None for one in seconds)
    return f"{told} and {counted(unknown, 'case')} of which no record tells" if unknown else told


def plan(steps: Sequence[Step], budget_s: float, folder: Path | None) -> Iterator[str]:
    """Lines: of each case the seconds of the launches that the folder lacks, the sum so far and
    what it would fill; `-` in place of the sum where there is no time for it."""
    spent_s, fit, left = 0.0, 0, Progress(folder, steps).left
    yield f"{'seconds':>9} {'sum':>9}  case"
    for step, launches in left:
        seconds = step.seconds(launches)
        fits = _fits(step, launches, budget_s - KEPT_S - spent_s)
        spent_s += (seconds or 0.0) if fits else 0.0
        fit += fits
        by = f"by {step.cost.of}" if step.cost and step.cost.of else ""
        notes = "; ".join(filter(None, ("" if step.cost else "no record tells", by, step.fills)))
        told = "?" if seconds is None else f"{seconds:,.0f}"
        so_far = f"{spent_s:,.0f}" if fits else "-"
        yield f"{told:>9} {so_far:>9}  {step.name}{f'  ({notes})' if notes else ''}"
    yield f"{counted(len(left), 'case')}, {_sum([step.seconds(count) for step, count in left])}"
    if math.isfinite(budget_s):
        yield f"{fit} of them within {budget_s:,.0f} s, of which {KEPT_S:.0f} are kept for writing"
