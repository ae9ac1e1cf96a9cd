"""What techniques predicted in numbers, beside what was measured.

Each line of the ledger (`prediction_ledger`) is held against the run that stands for its case
(`choice`) of those since it was written that measured its arm and what it is over, machine by
machine and case by case; a line that another replaced, against those until then. The measured value
itself decides: within the range it is held, else missed. What was written after a measurement is
revised, whatever it says. A ratio that an erratum withholds holds and misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from gpulift.analysis.choice import NOTHING_KNOWN, Choice
from gpulift.analysis.misses import Reason
from gpulift.analysis.prediction_ledger import IN_WORDS, WITHDRAWN, Line, ends_of, standing
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Record
from gpulift.records.read import Run
from gpulift.verdicts import stats
from gpulift.verdicts.cases import TECHNIQUE, Case, group_cases

FAR = 1.3  # a miss by more needs a reason
LITTLE = 1.1  # times tell no more than a percentage
HELD = "held"
MISSED = "missed"
REVISED = "revised"
UNMEASURED = "not yet measured"
NEVER = "9999"


@dataclass(frozen=True)
class Predicted:
    """A prediction and what a run of a machine says of it. `reason` is why it is missed, as far as
    that is told; `stands` unless another line replaced it."""

    line: Line
    case: Case
    measured: Estimate
    stands: bool = True
    reason: Reason | None = None

    @property
    def machine(self) -> str:
        """Of the results folder."""
        return self.case.first.context.slug

    @property
    def arm(self) -> str:
        """Of which it is."""
        return self.line.arm

    @property
    def expected(self) -> str:
        """`4 to 7×`, or `1.2 ms to 1.4 ms`."""
        low, high = self.line.low, self.line.high
        if self.line.over:
            return f"{text.digits(low)} to {text.digits(high)}×"
        return f"{text.seconds(low)} to {text.seconds(high)}"

    @property
    def missed_by(self) -> str:
        """`1.4 times`, of little `2.1 %`; empty within the range."""
        if not self.missed:
            return ""
        little = self.beyond < LITTLE
        return text.percent(self.beyond - 1) if little else f"{text.digits(self.beyond)} times"

    @cached_property
    def beyond(self) -> float:
        """How many times the measured value lies beyond the nearer end of the range; 1 within."""
        low, high = self.line.low, self.line.high
        return max(low / self.measured.value, self.measured.value / high, 1.0)

    @property
    def missed(self) -> bool:
        """Whether the value lies outside of the range."""
        return self.beyond > 1

    @property
    def far(self) -> bool:
        """Whether it stands, and is missed so far that there has to be a reason."""
        return self.stands and self.beyond > FAR

    @property
    def answer(self) -> str:
        """What it counts as."""
        if self.line.after:
            return REVISED
        return MISSED if self.missed else HELD


@dataclass(frozen=True)
class Tally:
    """How many answers held and missed, lines that were revised, and lines that wait for one."""

    held: int
    missed: int
    revised: int
    unmeasured: int

    @property
    def share(self) -> str:
        """`48 % (441 of 926)`: what held of all that was measured."""
        judged = self.held + self.missed
        return f"{100 * self.held / judged:.0f} % ({self.held} of {judged})" if judged else "none"


def predictions(
    records: Iterable[Record],
    lines: Sequence[Line],
    reasons: Sequence[Reason] = (),
    choice: Choice = NOTHING_KNOWN,
) -> tuple[Predicted, ...]:
    """Of each line, machine and case what the chosen run says, largest misses first."""
    by_technique: dict[str, list[Record]] = {}
    for record in records:
        if record.kind == TECHNIQUE and record.outcome == "ok":
            by_technique.setdefault(record.technique, []).append(record)
    ends = ends_of(lines)
    found = (
        replace(one, reason=_reason(one, reasons))
        for line in lines
        if line.remark != WITHDRAWN
        for one in _answers(
            line, ends.get(line, NEVER), by_technique.get(line.technique, ()), choice
        )
    )
    return tuple(sorted(found, key=lambda one: -one.beyond))


def tally(found: Sequence[Predicted], lines: Sequence[Line]) -> Tally:
    """Of answers and lines by their kinds; unmeasured is what stands, is not revised and has no
    answer."""
    answered = {one.line for one in found}
    kinds = [one.answer for one in found]
    return Tally(
        held=kinds.count(HELD),
        missed=kinds.count(MISSED),
        revised=sum(bool(line.after) for line in lines),
        unmeasured=sum(not line.after and line not in answered for line in standing(lines)),
    )


def in_numbers(found: Iterable[Predicted]) -> list[Predicted]:
    """Those that stood in numbers before they were measured, not in words alone."""
    return [one for one in found if one.line.remark != IN_WORDS]


def of_case(case: Case, arm: str) -> tuple[Predicted, ...]:
    """What the records of a case say themselves that was predicted of the arm."""
    first = case.first
    baseline = next((one.name for one in first.arms if one.role == "baseline"), "")
    made = []
    for one in first.predict:
        low, high = one.speedup or one.step_time_s or (0.0, 0.0)  # it refuses to have neither
        over = baseline if one.speedup else ""
        at = (first.started_at, first.technique, case.case_id, one.on, one.arm, over)
        line = Line(*at, low, high)
        value = _measured(case.records, line) if one.on in first.context.slug else None
        if one.arm == arm and value:
            made.append(Predicted(line, case, value))
    return tuple(made)


def _answers(
    line: Line, end: str, records: Sequence[Record], choice: Choice
) -> Iterable[Predicted]:
    of_cases: dict[tuple[str, str], dict[Path, list[Record]]] = {}
    for record in records:
        if line.since <= record.began_at < end and line.is_of(record, choice.today):
            place = (record.context.slug, choice.today.case_id(record))
            of_cases.setdefault(place, {}).setdefault(record.file.parent, []).append(record)
    for found in of_cases.values():
        runs = [Run(folder, tuple(launches)) for folder, launches in found.items()]
        known = [run for run in runs if not _withheld(run, line, choice)]
        best = choice.best(known) if known else None
        value = _measured(best.records, line) if best else None
        if best and value:
            (case,) = group_cases(best.records, TECHNIQUE)
            yield Predicted(line, case, value, end == NEVER)


def _withheld(run: Run, line: Line, choice: Choice) -> bool:
    """Whether a known error keeps the ratio from saying anything."""
    return bool(line.over) and choice.withheld(run.records, (line.arm, line.over))


def _reason(one: Predicted, reasons: Sequence[Reason]) -> Reason | None:
    return next((why for why in reasons if why.is_of(one.case.first, one.arm)), None)


def _measured(records: Sequence[Record], line: Line) -> Estimate | None:
    if not line.over:
        return stats.step_time(records, line.arm)
    pair = stats.pair_ratio(records, line.arm, line.over)
    return pair.speedup if pair else None
