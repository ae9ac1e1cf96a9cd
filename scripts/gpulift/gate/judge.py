"""The gate's verdicts: a pure function of its evidence."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpulift.gate.evidence import (
    ALTERNATING,
    BROKEN,
    CASES,
    COMMANDS,
    MISSING,
    NO_BASE,
    NULL,
    OK,
    PLANTED,
    SERIES,
    SLOWED,
    UNLIKE,
    Evidence,
    Launch,
    Row,
    Series,
    Setup,
)
from gpulift.ground import errors, steps
from gpulift.ground.estimate import CONFIDENCE
from gpulift.ground.steps import step
from gpulift.ground.text import counted
from gpulift.verdicts.decision import (
    ERROR,
    FASTER,
    GO_ON,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSED,
    SKIPPED,
    SLOWER,
    GatePlan,
    Margins,
    Screened,
    Verdict,
    confirm,
    decide_gate,
    paired,
    percent,
    screen,
)

MOST_UNDECIDED = 0.1  # of the comparisons that were judged
LESS_SHARP = "alternating processes: less sharp"
NULL_ROWS = 2
# Whole processes vary more than windows do, and those of a short command cost little.
SCREENS_OF_COMMANDS = (4, 8, 16, 32, 64, 128, 256)
# The planted slow-down: twice the smallest effect that the gate says it sees with 90 % power, so
# that it is missed once in thousands; and never less than what must not pass as equivalent.
PLANTED_ABOVE_SEEN = 2.0
LEAST_PLANTED = 0.01
MOST_PLANTED = 1.0
PLANTED_TOLERANCE = 0.5  # of the size: extra work behind a copy waits some microseconds for its end
UNCONFIRMED = "not confirmed: a control failed"
NOT_FINISHED = "not confirmed: a control is not finished"
BROKEN_OFF = "not confirmed: the gate was broken off"
MORE_TIME = "give more, or select fewer cases"  # to a budget that is too small
NAMED = 3  # rows that a control names before it counts the rest
# What leaves a row inconclusive whatever else was measured of it.
NO_FIGURES = (NO_BASE, SLOWED, UNLIKE)
HOLDS = "holds"
WRONG = "wrong"
OPEN = "open"  # the budget or an interrupt ended it
LEFT_OUT = "left out"  # not timed alike, which tells nothing of the instrument
STAGES = {CASES: "the screen", NULL: "control null", PLANTED: "control planted"}


@dataclass(frozen=True)
class RowResult:
    """The verdict on a row, and the launches behind it."""

    row: Row
    verdict: Verdict
    margins: Margins
    first: tuple[Launch, ...]
    second: tuple[Launch, ...]
    no_base: bool = False  # the base alone broke, or one side alone has the row

    @property
    def outcomes(self) -> set[str]:
        """Of all launches."""
        return {launch.outcome for launch in (*self.first, *self.second)}


@dataclass(frozen=True)
class Control:
    """A check of the instrument itself.

    One that is `unfinished` has not passed, and tells nothing of the instrument: the time ended.
    """

    name: str
    passed: bool
    said: str
    unfinished: bool = False

    @property
    def broken(self) -> bool:
        """Whether it shows that the instrument is broken."""
        return not self.passed and not self.unfinished

    @property
    def state(self) -> str:
        """For people: passed, not finished or FAILED."""
        if self.passed:
            return "passed"
        return "not finished" if self.unfinished else "FAILED"


@dataclass(frozen=True)
class _Finding:
    """What a control says of one row: one of HOLDS, WRONG, OPEN and LEFT_OUT."""

    state: str
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
    def open_as_usual(self) -> list[RowResult]:
        """The rows that vary too much for a verdict, as in most of their trials.

        One without a smallest effect is none of them: it was flagged, or not measured whole.
        """
        return [
            one
            for one in self.rows
            if one.row in self.setup.unsteady
            and one.verdict.verdict == INCONCLUSIVE
            and one.verdict.smallest_effect is not None
            and not one.verdict.unconfirmed
        ]

    @property
    def exit_code(self) -> int:
        """A broken instrument before everything, then regressions, then what was left open: by an
        unfinished control, a base that breaks alone, or in more than a tenth of the rows, without
        those that usually are."""
        usual = len(self.open_as_usual)
        judged = len(self.rows) - self.counts[SKIPPED]
        undecided = self.counts[INCONCLUSIVE] - usual
        if any(control.broken for control in self.controls):
            return errors.INSTRUMENT_BROKEN
        if self.counts[REGRESSED] or self.counts[ERROR]:
            return errors.FAILED
        if any(control.unfinished for control in self.controls):
            return errors.INCONCLUSIVE
        if any(one.no_base for one in self.rows):
            return errors.INCONCLUSIVE
        if not judged:
            return errors.NOTHING_RAN
        return errors.INCONCLUSIVE if undecided > MOST_UNDECIDED * (judged - usual) else errors.OK


def judge(evidence: Evidence) -> GateResult:
    """All verdicts and controls."""
    setup = evidence.setup
    plan = plan_of(evidence)
    rows = [_judge_case(row, evidence, plan) for row in setup.rows]
    controls: list[Control] = []
    if not evidence.ended:
        controls.append(_end_control(evidence))
    if any(one.verdict.verdict != SKIPPED for one in rows):
        controls += [rows_control(evidence), *hardware_control(evidence)]
    if needs_controls(evidence):
        controls.append(null_control(evidence))
        if controls[-1].passed:
            controls.append(planted_control(evidence))
    why = _why_unconfirmed(controls, evidence)
    if why:
        rows = [_blame_control(one, why) for one in rows]
    return GateResult(setup, plan, tuple(rows), tuple(controls))


def sound(evidence: Evidence) -> list[Row]:
    """The rows of which every launch of the first stage so far was measured."""
    held = evidence.cases.first
    return [
        row
        for row in evidence.setup.measurable
        if (first := held.get(row, ())) and len(values(first)) == len(first)
    ]


def needs_controls(evidence: Evidence) -> bool:
    """Whether a verdict rests on times: there is a row for a control then. In a gate of a command
    in which nothing was told, none does."""
    rows, plan = sound(evidence), plan_of(evidence)
    if evidence.setup.mode != COMMANDS or evidence.setup.null_rows:
        return bool(rows)
    judged = (_judge_row(row, evidence.cases, evidence.setup, plan).verdict for row in rows)
    return any(one.verdict != INCONCLUSIVE or one.unconfirmed for one in judged)


def plan_of(evidence: Evidence) -> GatePlan:
    """The error budget over the rows that have anything to compare."""
    first = evidence.cases.first
    empty = [row for row in evidence.setup.measurable if _unusable(first.get(row, ()))]
    cases = len(evidence.setup.measurable) - len(empty)
    return (
        GatePlan(cases, SCREENS_OF_COMMANDS) if evidence.setup.mode == COMMANDS else GatePlan(cases)
    )


def of_unknown_side(evidence: Evidence) -> list[Row]:
    """The rows in which a process broke that held both builds: the base has to be asked alone."""
    return [row for row in evidence.setup.measurable if _of_unknown_side(row, evidence)]


def next_screen(row: Row, series: Series, margins: Margins, plan: GatePlan) -> int:
    """How many launches of the first stage a row needs for its next look; 0 when it has enough."""
    first = series.first.get(row, ())
    if len(first) not in plan.screens:  # some went missing, which more would not mend
        return 0 if first else plan.screen_launches
    found = _screened(first, margins, plan)
    return found.wanted if found is not None else 0


def next_look(row: Row, series: Series, margins: Margins, plan: GatePlan) -> int:
    """How many launches of the second stage a row needs for its next look; 0 when decided."""
    first, second = series.first.get(row, ()), series.second.get(row, ())
    screened = _screened(first, margins, plan)
    if screened is None or len(values(second)) < len(second):
        return 0
    direction = screened.state
    for look in plan.looks if direction in (SLOWER, FASTER) else ():
        one = paired(values(second)[:look])
        if one is None or len(second) < look:
            return look
        if confirm(one, direction, margins, plan) != GO_ON:
            return 0
    return 0


def _screened(first: Sequence[Launch], margins: Margins, plan: GatePlan) -> Screened | None:
    """None where a launch has no value: no more launches would give the row a verdict."""
    held = values(first)
    return screen(held, margins, plan) if len(held) == len(first) else None


def values(launches: Sequence[Launch]) -> list[float]:
    """The log ratios of the launches that have one."""
    return [launch.value for launch in launches if launch.value is not None]


def control_rows(evidence: Evidence) -> list[Row]:
    """The sound rows that may stand for the others in the controls: an unsteady one, or one whose
    floor is above what the planted control can plant, would fail it for a reason that the
    certificate gives already."""
    rows, most = sound(evidence), MOST_PLANTED / PLANTED_ABOVE_SEEN
    return [
        row
        for row in rows
        if evidence.setup.margins(row).least < most and row not in evidence.setup.unsteady
    ] or rows


def choose_null_rows(
    measured: Sequence[Row], on_gpu: frozenset[str], launch_bound: frozenset[str], seed: int
) -> list[Row]:
    """Two rows for base against base: one bound by the GPU and one by launches where there are.

    `on_gpu` has the techniques that need a GPU, `launch_bound` those whose pace launches set. The
    choice is fixed by the seed.
    """
    mixed = sorted(measured)
    random.Random(seed).shuffle(mixed)
    by_launches = [row for row in mixed if row.technique in launch_bound]
    by_gpu = [row for row in mixed if row.technique in on_gpu - launch_bound]
    ordered = [*by_gpu[:1], *by_launches[:1], *mixed]
    return list(dict.fromkeys(ordered))[:NULL_ROWS]


def rows_control(evidence: Evidence) -> Control:
    """No expected row is missing: each has its launches, or a recorded reason."""
    plan = plan_of(evidence)
    absent = []
    for row in evidence.setup.measurable:
        first = evidence.cases.first.get(row, ())
        second = evidence.cases.second.get(row, ())
        held = _measured(first)
        if not _reason_recorded(first) and held not in plan.screens:
            planned = next((look for look in plan.screens if look > held), plan.screens[-1])
            absent.append(f"{row.id} ({held} of {planned} launches)")
        elif not _reason_recorded(second) and _measured(second) not in (0, *plan.looks):
            absent.append(f"{row.id} ({_measured(second)} launches of stage 2)")
    said = f"{counted(len(evidence.setup.rows), 'benchmark')} found"
    if absent:
        said = f"missing: {_some(absent)}"
    return Control("rows", not absent, said, bool(absent) and not evidence.ended)


def hardware_control(evidence: Evidence) -> list[Control]:
    """Nothing, or a failed control that names the rows in which the hardware cut every clock."""
    slowed = [
        row.id
        for row in evidence.setup.measurable
        if any(
            one.outcome == SLOWED for name in SERIES for one in _launches(row, evidence.of(name))
        )
    ]
    if not slowed:
        return []
    said = (
        f"the hardware slowed itself down in every block of a launch of {_some(slowed)}: look after"
        " cooling and power, and measure again"
    )
    return [Control("hardware", False, said)]


def null_control(evidence: Evidence) -> Control:
    """Base against base must be clean."""
    results = _judged(evidence.setup.null_rows, evidence.null, evidence)
    found = [_null_finding(one, evidence) for one in results]
    said = f"base against base is clean in {' and '.join(_held(found))}{_left_out(found)}"
    failed = _failed(NULL, found, "base against base was not measured", evidence)
    return failed or Control(NULL, True, said)


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
        said = "no planted slow-down was measured"
        return Control("planted", False, said, unfinished=not evidence.ended)
    results = _judged(evidence.setup.null_rows, evidence.planted, evidence)
    found = [_planted_finding(one, size, evidence) for one in results]
    said = f"planted slow-down found: {'; '.join(_held(found))}{_left_out(found)}"
    failed = _failed(PLANTED, found, "no planted slow-down was measured", evidence)
    return failed or Control(PLANTED, True, said)


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
    seen = verdict.smallest_effect
    if seen is not None and math.isfinite(seen) and (verdict.unconfirmed or not verdict.reason):
        parts.append(f"smallest effect that would have been seen {percent(seen)}")
    return "; ".join(parts)


def _judge_row(row: Row, series: Series, setup: Setup, plan: GatePlan) -> RowResult:
    margins = setup.margins(row)
    first, second = series.first.get(row, ()), series.second.get(row, ())
    found = ((SKIPPED, setup.unmeasurable), (ERROR, setup.broken), (INCONCLUSIVE, setup.lost))
    given = [_without_figures(word, why[row.id]) for word, why in found if row.id in why]
    verdict = given[0] if given else _judge_launches(first, second, margins, plan)
    return RowResult(row, verdict, margins, first, second, row.id in setup.lost)


def _judge_case(row: Row, evidence: Evidence, plan: GatePlan) -> RowResult:
    """A row of the gate itself. Where a process broke that held both builds, what the base does
    alone tells which one it was."""
    one = _judge_row(row, evidence.cases, evidence.setup, plan)
    if row not in evidence.setup.measurable:  # runs of a command say one side of it, if any
        return one
    if not _of_unknown_side(row, evidence):
        return replace(one, no_base=one.verdict.verdict != ERROR and NO_BASE in one.outcomes)
    alone = _launches(row, evidence.alone)
    broken = next((launch for launch in alone if launch.outcome in BROKEN), None)
    if broken is not None:
        reason = f"{NO_BASE}: it breaks against a copy of itself, too: {broken.reason}"
        return replace(one, verdict=_without_figures(INCONCLUSIVE, reason), no_base=True)
    asked = bool(alone) and len(values(alone)) == len(alone)
    told = "head" if asked else "head or base, the base was not tried alone"
    return replace(one, verdict=_without_figures(ERROR, f"{told}: {one.verdict.reason}"))


def _of_unknown_side(row: Row, evidence: Evidence) -> bool:
    return any(one.outcome in BROKEN and not one.side for one in _launches(row, evidence.cases))


def _launches(row: Row, series: Series) -> list[Launch]:
    return [*series.first.get(row, ()), *series.second.get(row, ())]


def _judge_launches(
    first: Sequence[Launch], second: Sequence[Launch], margins: Margins, plan: GatePlan
) -> Verdict:
    launches = [*first, *second]
    for one in launches:
        if one.outcome in BROKEN:
            return _without_figures(ERROR, one.reason)
    for outcome in NO_FIGURES:
        found = [one for one in launches if one.outcome == outcome]
        if found:
            reason = f"{outcome} in {len(found)} of {len(launches)} launches: {found[0].reason}"
            return _without_figures(INCONCLUSIVE, reason)
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


def _why_unconfirmed(controls: Sequence[Control], evidence: Evidence) -> str:
    """What kept flagged rows from being confirmed; empty where nothing did."""
    if any(control.broken for control in controls):
        return UNCONFIRMED
    if not evidence.ended:
        return BROKEN_OFF
    return NOT_FINISHED if any(control.unfinished for control in controls) else ""


def _blame_control(one: RowResult, why: str) -> RowResult:
    """Says of a row that was flagged and never confirmed why it was not."""
    if not one.verdict.unconfirmed:
        return one
    return replace(one, verdict=replace(one.verdict, reason=why))


def _without_figures(verdict: str, reason: str) -> Verdict:
    return Verdict(verdict, reason=reason, path=(step(steps.VERDICT, f"{verdict}: {reason}"),))


def _judged(rows: Sequence[Row], series: Series, evidence: Evidence) -> list[RowResult]:
    plan = plan_of(evidence)
    return [_judge_row(row, series, evidence.setup, plan) for row in rows]


def _end_control(evidence: Evidence) -> Control:
    last = "the confirmation" if evidence.cases.second else ""
    for series in (PLANTED, NULL, CASES):
        if not last and any(evidence.of(series).first.values()):
            last = STAGES[series]
    after = f"the last launches that were kept are of {last}" if last else "no launch was kept"
    by = f" by its budget ({MORE_TIME})" if evidence.setup.out_of_time else ""
    return Control("end", False, f"the gate was broken off{by}: {after}", unfinished=True)


def _failed(
    name: str, found: Sequence[_Finding], nothing: str, evidence: Evidence
) -> Control | None:
    """The control that did not pass, by its worst finding; None where it holds in any row."""
    for state in (WRONG, OPEN):
        said = [one.said for one in found if one.state == state]
        if said:
            return Control(name, False, said[0], unfinished=state == OPEN)
    if _held(found):
        return None
    if found:
        return Control(name, False, found[0].said, unfinished=True)
    return Control(name, False, nothing, unfinished=not evidence.ended)


def _held(found: Sequence[_Finding]) -> list[str]:
    return [one.said for one in found if one.state == HOLDS]


def _left_out(found: Sequence[_Finding]) -> str:
    return "".join(f"; left out, {one.said}" for one in found if one.state == LEFT_OUT)


def _null_finding(one: RowResult, evidence: Evidence) -> _Finding:
    state, problem = _not_measured(one, NULL, evidence)
    if not problem and one.verdict.verdict in (REGRESSED, IMPROVED):
        state, problem = WRONG, f"alarm: {describe(one.verdict)}"
    if not problem and _undecided(one, evidence):
        state = OPEN if evidence.left_open(NULL) else WRONG
        problem = f"not decided: {describe(one.verdict)}"
    if problem:
        return _Finding(state, f"base against base, {one.row.id}: {problem}")
    return _Finding(HOLDS, one.row.id)


def _planted_finding(one: RowResult, size: float, evidence: Evidence) -> _Finding:
    planted = size if evidence.setup.mode == ALTERNATING else _measured_plant(one)
    by_command = evidence.setup.planted_by_command
    how = "by its command" if by_command else percent(size if planted is None else planted)
    named = f"{one.row.id}: planted {how}"
    state, problem = _not_measured(one, PLANTED, evidence)
    if not problem and one.verdict.verdict != REGRESSED and evidence.left_open(PLANTED):
        state, problem = OPEN, f"not decided: {describe(one.verdict)}"
    if not problem:
        wrong = _overlooked(one) if by_command else _misread(one, planted, size)
        state, problem = WRONG, wrong
    read = one.verdict.difference
    if problem or read is None:
        return _Finding(state, f"{named}, {problem}")
    return _Finding(HOLDS, f"{named}, read {percent(read.change)}")


def _not_measured(one: RowResult, series: str, evidence: Evidence) -> tuple[str, str]:
    """The state of a control's row that was not measured whole, and what is wrong with it."""
    told = f"{one.verdict.verdict}: {one.verdict.reason}"
    if one.verdict.verdict in (ERROR, SKIPPED):
        return WRONG, told
    if UNLIKE in one.outcomes:
        return LEFT_OUT, told
    launches = plan_of(evidence).screen_launches
    if _measured(one.first) < launches:
        state = OPEN if evidence.left_open(series) else WRONG
        return state, f"only {_measured(one.first)} of {launches} launches were measured"
    if any(launch.outcome not in (OK, MISSING) for launch in (*one.first, *one.second)):
        return WRONG, told
    return HOLDS, ""


def _undecided(one: RowResult, evidence: Evidence) -> bool:
    series = Series({one.row: one.first}, {one.row: one.second})
    return next_look(one.row, series, one.margins, plan_of(evidence)) > 0


def _measured_plant(one: RowResult) -> float | None:
    """The median over the launches of what was really planted, or None where none says it."""
    said = [launch.planted for launch in (*one.first, *one.second) if launch.planted is not None]
    return median(said) if said else None


def _misread(one: RowResult, planted: float | None, size: float) -> str:
    """What is wrong with how a planted slow-down was read; empty when it was found."""
    read = one.verdict.difference
    if planted is None:
        return "but no record says what was really planted"
    if (overlooked := _overlooked(one)) or read is None:
        return overlooked
    low, high = (math.expm1(end) for end in read.interval(CONFIDENCE))
    slack = PLANTED_TOLERANCE * size
    if not low - slack <= planted <= high + slack:
        return f"read wrongly: {describe(one.verdict)}"
    return ""


def _overlooked(one: RowResult) -> str:
    """Empty when a planted slow-down was found."""
    return "" if one.verdict.verdict == REGRESSED else f"not found: {describe(one.verdict)}"


def _measured(launches: Sequence[Launch]) -> int:
    return sum(launch.outcome != MISSING for launch in launches)


def _reason_recorded(launches: Sequence[Launch]) -> bool:
    return any(launch.outcome not in ("ok", MISSING) for launch in launches)


def _unusable(launches: Sequence[Launch]) -> bool:
    return _reason_recorded(launches) and not values(launches)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
