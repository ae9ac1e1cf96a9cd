"""What a gate answers: rows with both sides, the steps to each verdict, what it all rests on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from gpulift.gate import evidence as kept
from gpulift.gate.evidence import ALTERNATING, BASE, COMMANDS, HEAD, TWO_IN_ONE, Launch, Setup
from gpulift.gate.judge import Control, GateResult, RowResult
from gpulift.gate.launches import (
    CONFIRMATION,
    SCREEN,
    GateRecords,
    Place,
    read_records,
    timed,
    turn_data,
    turn_line,
)
from gpulift.gate.metrics import INSTRUCTIONS, NOT_TIME, WALL, Reading
from gpulift.gate.pairs import PairedLaunch, read_launch
from gpulift.gate.reach import MOST_LAUNCHES, needed
from gpulift.ground import steps, text
from gpulift.ground.estimate import Estimate
from gpulift.ground.steps import step
from gpulift.verdicts import explain
from gpulift.verdicts.comparison import Launch as Timed
from gpulift.verdicts.decision import (
    EQUIVALENT,
    INCONCLUSIVE,
    SKIPPED,
    WORST_FIRST,
    GatePlan,
    percent,
)
from gpulift.verdicts.row import FAILED, OPEN, PASSED, Quantity, Row, Table

NAME = "gpulift gate"
# How a launch's windows become its log ratio: not by the medians that stand beside it in a duet.
LOG_RATIO = {
    TWO_IN_ONE: "the log ratio of a launch is the median of its blocks, and that of a block the"
    " mean log step time of the head's windows in it less the base's",
    ALTERNATING: "the log ratio of a launch is the mean log of its head processes' median steps"
    " less that of its base processes",
    COMMANDS: "the log ratio of a launch is that of the numbers of a run of the head and one of the"
    " base, and above 0 where the head is worse",
}
SLOW_START, SLOW_START_S = 5.0, 0.2  # times the later runs: a first one did what they did not
OF_CONTROLS = 24  # launches, and more where they vary
BUSY_CORES = 0.5  # of others, from which on a run is said to have been disturbed


def answer(result: GateResult, folder: Path) -> Table:
    """All rows, worst first, from the evidence in the folder."""
    setup, usual = result.setup, result.open_as_usual
    of_command = setup.mode == COMMANDS
    records = GateRecords(folder, {}) if of_command else read_records(folder, setup)
    launches = launches_of(folder, result) if of_command else []
    rows = [
        _row(judged, result, records, launches, judged in usual)
        for judged in sorted(result.rows, key=_worst_first)
    ]
    notes = [*_noted(result, rows, launches, folder)] if of_command else [as_usual(result)]
    held = [f"on {setup.machine}", result.note, family(result.plan), setup.certificate]
    return Table(
        name=NAME,
        title=f"base {setup.base}, head {setup.head}",
        rows=tuple(rows),
        exit_code=result.exit_code,
        controls=tuple(map(_control, result.controls)),
        notes=tuple(filter(None, notes)),
        conditions=("; ".join(filter(None, held)),),
        folder=str(folder),
        words={EQUIVALENT: f" (within {percent(setup.equivalent)})"} if of_command else {},
        data=_document(result),
    )


def _worst_first(judged: RowResult) -> tuple[int, float]:
    """Of one verdict what got slower most."""
    read = judged.verdict.difference
    return WORST_FIRST.index(judged.verdict.verdict), -read.change if read else 0.0


def _document(result: GateResult) -> dict[str, Any]:
    setup, plan = result.setup, result.plan
    return {
        "method": setup.method,
        "mode": setup.mode,
        "base": setup.base,
        "head": setup.head,
        "machine": setup.machine,
        "certificate": setup.certificate,
        "comparability": comparability(setup),
        "launch_value": LOG_RATIO[setup.mode],
        "unsteady": [row.id for row in setup.unsteady],
        "family": plan.cases,
        "suite_alpha": plan.suite_alpha,
        "counts": {word: result.counts[word] for word in WORST_FIRST},
    }


def _control(control: Control) -> Row:
    kind = PASSED if control.passed else OPEN if control.unfinished else FAILED
    return Row(
        "control",
        control.name,
        control.state,
        kind,
        reason=control.said,
        data=lambda: vars(control),
    )


def as_usual(result: GateResult) -> str:
    """The rows that are inconclusive as in the certificate's trials, by technique; or nothing."""
    counts = Counter(judged.row.technique for judged in result.open_as_usual)
    if not counts:
        return ""
    named = ", ".join(f"{technique} ({count})" for technique, count in counts.items())
    return (
        f"{sum(counts.values())} inconclusive as in most of their trials on"
        f" {result.setup.machine}, looked at once and not counted: {named}; a filter that names"
        " them looks longer"
    )


def family(plan: GatePlan) -> str:
    """How many comparisons share the error budget, and what it is."""
    if not plan.cases:
        return "nothing was compared"
    return (
        f"family of {plan.cases}: planned chance of a false regression in the whole gate"
        f" {percent(plan.suite_alpha)}"
    )


def comparability(setup: Setup) -> list[str]:
    """What holds base and head comparable, of all that a gate looks at."""
    return [
        f"base {setup.base}, head {setup.head}: nothing is measured where their builds differ in"
        " more than the commit",
        f"nothing is judged where card, driver or host change between records: all are of one"
        f" machine ({setup.machine})",
        "a launch has no log ratio where base and head were not timed alike: clock and hold",
    ]


# --- Rows ---


def _row(
    judged: RowResult,
    result: GateResult,
    records: GateRecords,
    launches: Sequence[PairedLaunch],
    usual: bool,
) -> Row:
    of_command = result.setup.mode == COMMANDS
    numbers = _numbers(judged, launches)
    base, head = ("", "")
    if numbers:
        base, head = shown(numbers.base), shown(numbers.head)
    elif judged.verdict.difference and (timed_base := _side(BASE, judged, records)):
        base, head = explain.sides(timed_base, judged.verdict.difference.change)
    made = judged.verdict.row(
        judged.row.arm if of_command else judged.row.id,
        judged.margins.least,
        group=judged.row.technique,
        base=base,
        head=head,
        note=result.note,
        notable=judged.verdict.verdict not in (EQUIVALENT, SKIPPED) and not usual,
        steps=partial(_steps, judged, result, records),
        data=partial(_data, judged, result, records, numbers),
    )
    if not numbers:
        return made
    scaled = numbers.factor.scaled(numbers.base.value)
    measured = Quantity(scaled, numbers.base.unit, numbers.base.higher)
    return replace(made, estimate=numbers.factor, measured=measured)


@dataclass(frozen=True)
class _Numbers:
    """What a command says of a row: the base's median, and head / base of the number itself."""

    base: Reading
    factor: Estimate

    @property
    def head(self) -> Reading:
        """The base's median times the ratio, so that the three never contradict each other."""
        return replace(self.base, value=self.base.value * self.factor.value)


def _numbers(judged: RowResult, launches: Sequence[PairedLaunch]) -> _Numbers | None:
    runs = [pair.base.values for launch in launches for pair in launch.pairs]
    read = [values[judged.row.arm] for values in runs if judged.row.arm in values]
    if not read or not judged.verdict.difference:
        return None
    base = replace(read[0], value=median(reading.value for reading in read))
    ratio = judged.verdict.difference.ratio
    return _Numbers(base, ratio.inverse() if base.higher else ratio)


def shown(read: Reading) -> str:
    """A number in its unit."""
    if read.unit == "s":
        return text.seconds(read.value)
    if read.unit == INSTRUCTIONS:
        return text.rate(read.value, read.unit)
    return f"{read.value:.4g}{' ' if read.unit else ''}{read.unit}"


def launches_of(folder: Path, result: GateResult, *of: str) -> list[PairedLaunch]:
    """Those of the rows of a command, or of these series, of both stages."""
    return [
        launch
        for series in of or (kept.CASES,)
        for stage in (1, 2)
        for path in kept.launch_folders(folder, series, stage, result.setup.mode)
        if (launch := read_launch(path))
    ]


def _side(side: str, judged: RowResult, records: GateRecords) -> list[Timed]:
    """The launches of a side that were measured."""
    turns = (turn for turn in records.of_row(judged.row) if turn.side == side)
    return [launch for launch in map(timed, turns) if launch is not None]


def _attribution(judged: RowResult, records: GateRecords) -> explain.Attribution | None:
    return explain.attribution(
        _side(BASE, judged, records), _side(HEAD, judged, records), judged.verdict
    )


def _data(
    judged: RowResult, result: GateResult, records: GateRecords, numbers: _Numbers | None
) -> dict[str, Any]:
    verdict = judged.verdict
    made: dict[str, Any] = {
        "technique": judged.row.technique,
        "case": judged.row.case_id,
        "arm": judged.row.arm,
        **verdict.data(judged.margins),
        "launch_log_ratios": {
            SCREEN: [launch.value for launch in judged.first],
            CONFIRMATION: [launch.value for launch in judged.second],
        },
    }
    # Of the launches without a log ratio.
    not_measured = [
        {"stage": stage, "launch": number, "outcome": launch.outcome, "reason": launch.reason}
        for (stage, number), launch in _launches(judged)
        if launch.value is None
    ]
    made |= {"not_measured": not_measured} if not_measured else {}
    if verdict.difference is not None:
        ratio = verdict.difference.ratio
        made["ratio"] = {"value": ratio.value, "low": ratio.low, "high": ratio.high}
        made["launches"] = ratio.launches
    floor, attributed = result.setup.floors.get(judged.row.id), _attribution(judged, records)
    made |= {"floor": floor} if floor is not None else {}
    made |= {"note": result.note} if result.note else {}
    made |= {"attribution": attributed.data} if attributed else {}
    made |= (
        {"medians": {side: vars(getattr(numbers, side)) for side in (BASE, HEAD)}}
        if numbers
        else {}
    )
    sides: dict[str, list[dict[str, Any]]] = {BASE: [], HEAD: []}
    for where, _ in _launches(judged):
        for turn in records.of(judged.row, where):
            sides[turn.side].append(turn_data(records.folder, where, turn))
    return made | sides


# --- Steps ---


def _steps(judged: RowResult, result: GateResult, records: GateRecords) -> list[str]:
    """Every step from windows to the verdict and its cause."""
    lines = [
        *(step(steps.COMPARABILITY, fact) for fact in comparability(result.setup)),
        *_launch_lines(judged, result.setup.mode, records),
        *([step(steps.PAIRED, result.note)] if result.note else []),
        *_rules(judged, result),
    ]
    return explain.path_to(judged.verdict, lines, _attribution(judged, records))


def _launch_lines(judged: RowResult, mode: str, records: GateRecords) -> Iterator[str]:
    """Of each launch what its sides stand on, and then its value; at the end how that is made."""
    for where, launch in _launches(judged):
        for turn in records.of(judged.row, where):
            yield turn_line(where, turn)
        stage, number = where
        yield step(steps.LAUNCH_VALUE, f"{stage} launch {number}: {_launch_text(launch)}")
    if any(launch.value is not None for _, launch in _launches(judged)):
        yield step(steps.LAUNCH_VALUE, LOG_RATIO[mode])


def _rules(judged: RowResult, result: GateResult) -> Iterator[str]:
    """The error budget and the margins, where figures were held against them."""
    if judged.verdict.difference is None:
        return
    yield step(steps.FAMILY, family(result.plan))
    least, floor = percent(judged.margins.least), result.setup.floors.get(judged.row.id)
    asked = result.setup.least_changes.get(judged.row.id)
    by = "" if floor is None else f" (its floor in the certificate is {percent(floor)})"
    by += "" if asked is None else f" (--thresholds: {percent(asked)})"
    yield step(steps.SCREEN, f"least change that is called one: {least}{by}")
    if judged.row in result.setup.unsteady:
        yield step(steps.SCREEN, "unsteady in the certificate: looked at once")
    yield step(steps.EQUIVALENCE, f"counts as no change: +-{percent(judged.margins.equivalent)}")


def _launches(judged: RowResult) -> Iterator[tuple[Place, Launch]]:
    """Of both stages, with the stage's name and their numbers in it, from 1."""
    for stage, launches in ((SCREEN, judged.first), (CONFIRMATION, judged.second)):
        for number, launch in enumerate(launches, start=1):
            yield (stage, number), launch


def _launch_text(launch: Launch) -> str:
    if launch.value is None:
        return f"{launch.outcome}: {launch.reason}"
    return f"head/base {math.exp(launch.value):.6f} (log ratio {launch.value:+.6f})"


# --- Of a command ---


def _noted(
    result: GateResult, rows: Sequence[Row], launches: Sequence[PairedLaunch], folder: Path
) -> Iterator[str]:
    """What numbers that are no times do not see, what could not be told, and what disturbed it."""
    units = {row.measured.unit for row in rows if row.measured}
    yield from (note for unit, note in NOT_TIME.items() if unit in units)
    yield from _untold(result, launches, folder)
    measured = {row.subject for row in rows if row.measured}
    if result.counts[INCONCLUSIVE] and measured == {WALL}:
        yield "--metric cpu may tell it: other processes disturb CPU seconds less than the clock"
    yield from _disturbed(result, launches)


def _untold(result: GateResult, launches: Sequence[PairedLaunch], folder: Path) -> Iterator[str]:
    """What could not be told, with how many launches, and what would tell it."""
    rows = [judged for judged in result.rows if judged.verdict.verdict == INCONCLUSIVE]
    if not rows:
        return
    most = max(len(judged.first) + len(judged.second) for judged in rows)
    yield f"{text.counted(len(rows), 'row')} could not be told with {most} launches"
    needs = [
        needed(judged, one, result.plan) for judged in rows if (one := judged.verdict.difference)
    ]
    counts = [count for count, _ in needs if count]
    effect = max((least for _, least in needs), default=0.0)
    if len(counts) < len(needs):
        yield f"{MOST_LAUNCHES} launches cannot tell {percent(effect)}: --threshold asks for less"
    elif counts:
        pairs = [pair for launch in launches for pair in launch.pairs]
        each_s = sum(pair.base.seconds + pair.head.seconds for pair in pairs) / len(launches)
        controls = max(OF_CONTROLS, len(launches_of(folder, result, kept.NULL, kept.PLANTED)))
        minutes = math.ceil((max(counts) + controls) * each_s / 60)
        yield f"{max(counts)} launches would tell {percent(effect)}: --budget {minutes}m"


def _disturbed(result: GateResult, launches: Sequence[PairedLaunch]) -> Iterator[str]:
    pairs = [pair for launch in launches for pair in launch.pairs]
    busy = [pair.of(side).other_cores for pair in pairs for side in pair.order]
    if busy and median(busy) > BUSY_CORES:
        yield (
            f"other processes kept {median(busy):.1f} cores busy meanwhile: repeat it on a quiet"
            " machine"
        )
    dropped = [run for launch in launches for run in launch.dropped]
    if dropped:
        first = dropped[0]
        yield f"{len(dropped)} runs failed and were taken again: {first.side}: {first.reason}"
    left = [name for pair in pairs for side in pair.order for name in pair.of(side).left]
    if left:
        many = text.counted(len(left), "process", "processes")
        yield f"runs left {many} behind, as {text.visible(left[0])}, which were ended after each"
    for side, first_s in result.setup.first_s.items():
        later_s = median(pair.of(side).seconds for pair in pairs) if pairs else first_s
        if first_s > SLOW_START * later_s and first_s - later_s > SLOW_START_S:
            yield (
                f"the first run of the {side} took {first_s / later_s:.0f} times as long as later"
                " ones, which alone are judged: do they go on from a file that it left?"
            )
