"""The gate's verdicts: a pure function of its evidence."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpulift import errors
from gpulift.decision import (
    ERROR,
    GO_ON,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSED,
    SKIPPED,
    GatePlan,
    Margins,
    Verdict,
    confirm,
    decide_gate,
    paired,
    percent,
    screen,
)
from gpulift.gate.evidence import ALTERNATING, MISSING, Evidence, Launch, Row, Series, Setup
from gpulift.stats import CONFIDENCE

MOST_UNDECIDED = 0.1  # of the comparisons that were judged
LESS_SHARP = "alternating processes: less sharp"
NULL_ROWS = 2
# The planted slow-down: twice the smallest effect that the gate says it sees with 90 % power, so
# that it is missed once in thousands; and never less than what must not pass as equivalent.
PLANTED_ABOVE_SEEN = 2.0
LEAST_PLANTED = 0.01
MOST_PLANTED = 1.0
PLANTED_TOLERANCE = 0.5  # of the size: extra work behind a copy waits some microseconds for its end
UNCONFIRMED = "not confirmed: a control failed"


@dataclass(frozen=True)
class RowResult:
    """The verdict on a row, and the launches behind it."""

    row: Row
    verdict: Verdict
    margins: Margins
    first: tuple[Launch, ...]
    second: tuple[Launch, ...]


@dataclass(frozen=True)
class Control:
    """A check of the instrument itself."""

    name: str
    passed: bool
    said: str


@dataclass(frozen=True)
class GateResult:
    """What a gate found."""

    setup: Setup
    plan: GatePlan
    rows: tuple[RowResult, ...]
    controls: tuple[Control, ...]

    @property
    def counts(self) -> Counter[str]:
        """How often each verdict was given."""
        return Counter(one.verdict.verdict for one in self.rows)

    @property
    def note(self) -> str:
        """What every row has to say of how it was measured; empty for a duet."""
        return LESS_SHARP if self.setup.mode == ALTERNATING else ""

    @property
    def exit_code(self) -> int:
        """A broken instrument before everything, then regressions, then too much left open."""
        judged = len(self.rows) - self.counts[SKIPPED]
        if any(not control.passed for control in self.controls):
            return errors.INSTRUMENT_BROKEN
        if self.counts[REGRESSED] or self.counts[ERROR]:
            return errors.FAILED
        if not judged:
            return errors.NOTHING_RAN
        return (
            errors.INCONCLUSIVE
            if self.counts[INCONCLUSIVE] > MOST_UNDECIDED * judged
            else errors.OK
        )


def judge(evidence: Evidence) -> GateResult:
    """All verdicts and controls."""
    setup = evidence.setup
    plan = plan_of(evidence)
    rows = [_judge_row(row, evidence.cases, setup, plan) for row in setup.rows]
    controls: list[Control] = []
    if any(one.verdict.verdict != SKIPPED for one in rows):
        controls.append(rows_control(evidence))
    if sound(evidence):  # else no verdict rests on times, and there is no row for a control
        controls += [null_control(evidence), planted_control(evidence)]
    if any(not control.passed for control in controls):
        rows = [_blame_control(one) for one in rows]
    return GateResult(setup, plan, tuple(rows), tuple(controls))


def sound(evidence: Evidence) -> list[Row]:
    """The rows of which every launch of the first stage so far was measured."""
    held = evidence.cases.first
    return [
        row
        for row in evidence.setup.measurable
        if (first := held.get(row, ())) and len(values(first)) == len(first)
    ]


def plan_of(evidence: Evidence) -> GatePlan:
    """The error budget over the rows that have anything to compare."""
    first = evidence.cases.first
    empty = [row for row in evidence.setup.measurable if _unusable(first.get(row, ()))]
    return GatePlan(len(evidence.setup.measurable) - len(empty))


def next_look(row: Row, series: Series, margins: Margins, plan: GatePlan) -> int:
    """How many launches of the second stage a row needs for its next look; 0 when decided."""
    first, second = series.first.get(row, ()), series.second.get(row, ())
    start = paired(values(first))
    if start is None or len(values(first)) < len(first) or len(values(second)) < len(second):
        return 0
    direction = screen(start, margins, plan)
    for look in plan.looks if direction else ():
        one = paired(values(second)[:look])
        if one is None or len(second) < look:
            return look
        if confirm(one, direction, margins, plan) != GO_ON:
            return 0
    return 0


def values(launches: Sequence[Launch]) -> list[float]:
    """The log ratios of the launches that have one."""
    return [launch.value for launch in launches if launch.value is not None]


def choose_null_rows(measured: Sequence[Row], on_gpu: frozenset[str], seed: int) -> list[Row]:
    """Two rows for base against base: one bound by the GPU and one by launches where there are.

    `on_gpu` has the techniques that need a GPU. The choice is fixed by the seed.
    """
    mixed = sorted(measured)
    random.Random(seed).shuffle(mixed)
    launch_bound = [row for row in mixed if "launch" in row.technique.split("/")]
    gpu_bound = [row for row in mixed if row.technique in on_gpu and row not in launch_bound]
    ordered = [*gpu_bound[:1], *launch_bound[:1], *mixed]
    return list(dict.fromkeys(ordered))[:NULL_ROWS]


def rows_control(evidence: Evidence) -> Control:
    """No expected row is missing: each has its launches, or a recorded reason."""
    plan = plan_of(evidence)
    absent = []
    for row in evidence.setup.measurable:
        first = evidence.cases.first.get(row, ())
        second = evidence.cases.second.get(row, ())
        if not _reason_recorded(first) and _measured(first) < plan.screen_launches:
            absent.append(f"{row.id} ({_measured(first)} of {plan.screen_launches} launches)")
        elif not _reason_recorded(second) and _measured(second) not in (0, *plan.looks):
            absent.append(f"{row.id} ({_measured(second)} launches of stage 2)")
    said = f"{len(evidence.setup.rows)} rows are there"
    if absent:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        said = f"missing: {', '.join(absent[:3])}{more}"
    return Control("rows", not absent, said)


def null_control(evidence: Evidence) -> Control:
    """Base against base must be clean."""
    setup = evidence.setup
    results = _judged(setup.null_rows, evidence.null, evidence)
    for one in results:
        problem = _not_measured(one, evidence) or _alarm(one, evidence)
        if problem:
            return Control("null", False, f"base against base, {one.row.id}: {problem}")
    if not results:
        return Control("null", False, "base against base was not measured")
    return Control("null", True, f"base against base is clean in {_names(results)}")


def planted_size(evidence: Evidence) -> float:
    """By what fraction the planted control slows the head down, from the null control's verdicts.

    It is planted in the same rows, so that the size follows from what the gate claims to see in
    them on this machine. Two significant digits, rounded up.
    """
    judged = _judged(evidence.setup.null_rows, evidence.null, evidence)
    seen = max((one.verdict.smallest_effect or 0.0 for one in judged), default=0.0)
    size = min(max(LEAST_PLANTED, PLANTED_ABOVE_SEEN * seen), MOST_PLANTED)
    scale = 10.0 ** (1 - math.floor(math.log10(size)))
    return math.ceil(round(size * scale, 6)) / scale


def planted_control(evidence: Evidence) -> Control:
    """A slow-down that was planted in the head must be found, with its size."""
    size = evidence.setup.planted_size
    if not size:
        return Control("planted", False, "no planted slow-down was measured")
    found = []
    for one in _judged(evidence.setup.null_rows, evidence.planted, evidence):
        planted = size if evidence.setup.mode == ALTERNATING else _measured_plant(one)
        problem = _not_measured(one, evidence) or _misread(one, planted, size)
        named = f"{one.row.id}: planted {percent(size if planted is None else planted)}"
        read = one.verdict.difference
        if problem or read is None:
            return Control("planted", False, f"{named}, {problem}")
        found.append(f"{named}, read {percent(read.change)}")
    return Control("planted", True, f"planted slow-down found: {'; '.join(found)}")


def describe(verdict: Verdict) -> str:
    """The verdict with ratio, interval, smallest effect and reason, on one line."""
    parts = [verdict.verdict]
    if verdict.difference is not None:
        ratio = verdict.difference.ratio
        parts.append(
            f"head/base {ratio.value:.5f}, 95 % interval {ratio.low:.5f} to {ratio.high:.5f},"
            f" {ratio.launches} launches"
        )
    if verdict.reason:
        parts.append(verdict.reason)
    elif verdict.smallest_effect is not None and math.isfinite(verdict.smallest_effect):
        parts.append(
            f"smallest effect that would have been seen {percent(verdict.smallest_effect)}"
        )
    return "; ".join(parts)


def _judge_row(row: Row, series: Series, setup: Setup, plan: GatePlan) -> RowResult:
    margins = setup.margins(row)
    first, second = series.first.get(row, ()), series.second.get(row, ())
    unmeasurable = setup.unmeasurable.get(row.id)
    if unmeasurable is not None:
        verdict = _without_figures(SKIPPED, unmeasurable)
    else:
        verdict = _judge_launches(first, second, margins, plan)
    return RowResult(row, verdict, margins, first, second)


def _judge_launches(
    first: Sequence[Launch], second: Sequence[Launch], margins: Margins, plan: GatePlan
) -> Verdict:
    launches = [*first, *second]
    for one in launches:
        if one.outcome in ("failed", "error"):
            return _without_figures(ERROR, one.reason)
    skips = [one for one in launches if one.outcome == "skipped"]
    if skips and len(skips) == len(launches):
        return _without_figures(SKIPPED, skips[0].reason)
    if skips:
        reason = f"{len(skips)} of {len(launches)} launches were skipped: {skips[0].reason}"
        return _without_figures(INCONCLUSIVE, reason)
    verdict = decide_gate(values(first), values(second), margins, plan)
    if verdict.verdict == INCONCLUSIVE and verdict.difference is None:
        # Nothing was looked at after the screen, so that its figures are all there is to show.
        return replace(verdict, difference=paired(values(first)))
    return verdict


def _blame_control(one: RowResult) -> RowResult:
    """Says of a row that was flagged and never confirmed why it was not."""
    verdict = one.verdict
    open_still = verdict.difference is not None and verdict.smallest_effect is None
    if verdict.verdict != INCONCLUSIVE or not open_still:
        return one
    return replace(one, verdict=replace(verdict, reason=UNCONFIRMED))


def _without_figures(verdict: str, reason: str) -> Verdict:
    return Verdict(verdict, reason=reason, path=(f"Recorded: {reason}", f"Verdict: {verdict}"))


def _judged(rows: Sequence[Row], series: Series, evidence: Evidence) -> list[RowResult]:
    plan = plan_of(evidence)
    return [_judge_row(row, series, evidence.setup, plan) for row in rows]


def _not_measured(one: RowResult, evidence: Evidence) -> str:
    if one.verdict.verdict in (ERROR, SKIPPED):
        return f"{one.verdict.verdict}: {one.verdict.reason}"
    launches = plan_of(evidence).screen_launches
    if _measured(one.first) < launches:
        return f"only {_measured(one.first)} of {launches} launches were measured"
    return ""


def _alarm(one: RowResult, evidence: Evidence) -> str:
    if one.verdict.verdict in (REGRESSED, IMPROVED):
        return f"alarm: {describe(one.verdict)}"
    series = Series({one.row: one.first}, {one.row: one.second})
    if next_look(one.row, series, one.margins, plan_of(evidence)):
        return f"not decided: {describe(one.verdict)}"
    return ""


def _measured_plant(one: RowResult) -> float | None:
    """The median over the launches of what was really planted, or None where none says it."""
    said = [launch.planted for launch in (*one.first, *one.second) if launch.planted is not None]
    return median(said) if said else None


def _misread(one: RowResult, planted: float | None, size: float) -> str:
    """What is wrong with how a planted slow-down was read; empty when it was found."""
    read = one.verdict.difference
    if planted is None:
        return "but no record says what was really planted"
    if one.verdict.verdict != REGRESSED or read is None:
        return f"not found: {describe(one.verdict)}"
    low, high = (math.expm1(end) for end in read.interval(CONFIDENCE))
    slack = PLANTED_TOLERANCE * size
    if not low - slack <= planted <= high + slack:
        return f"read wrongly: {describe(one.verdict)}"
    return ""


def _measured(launches: Sequence[Launch]) -> int:
    return sum(launch.outcome != MISSING for launch in launches)


def _reason_recorded(launches: Sequence[Launch]) -> bool:
    return any(launch.outcome not in ("ok", MISSING) for launch in launches)


def _unusable(launches: Sequence[Launch]) -> bool:
    return _reason_recorded(launches) and not values(launches)


def _names(results: Sequence[RowResult]) -> str:
    return " and ".join(one.row.id for one in results)
