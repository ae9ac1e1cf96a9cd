"""Measures a gate: the screen, the controls, the confirmation of what was flagged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from gpulift.gate.evidence import (
    ALONE,
    BASE,
    CASES,
    COMMANDS,
    HEAD,
    NULL,
    PLANTED,
    SERIES,
    Evidence,
    Row,
    Setup,
    read_evidence,
    read_launches,
    save,
    stage_folder,
)
from gpulift.gate.judge import (
    MORE_TIME,
    NULL_ROWS,
    Control,
    choose_null_rows,
    control_rows,
    hardware_control,
    needs_controls,
    next_look,
    next_screen,
    null_control,
    of_unknown_side,
    plan_of,
    planted_control,
    planted_size,
    rows_control,
    sound,
)
from gpulift.gate.reach import why_stop
from gpulift.ground.errors import GpuliftError
from gpulift.verdicts.decision import GatePlan, percent

Say = Callable[[str], None]
Clock = Callable[[], float]
NULL_OF_COMMANDS = 8  # launches of base against base
PILOT = 2  # launches of the screen that tell how long a gate takes
SEEDS_PER_STAGE = 1000  # more than a stage has launches; a multiple of four, see _duet


@dataclass
class Budget:
    """Wall-clock time of a gate, of which `used_s` was over when it was made. What a launch of a
    row takes is learned while it measures."""

    limit_s: float | None
    planned_s: float
    clock: Clock = time.monotonic
    used_s: float = 0.0
    started_s: float = field(init=False)
    spent_s: float = 0.0
    row_launches: int = 0

    def __post_init__(self) -> None:
        self.started_s = self.clock()

    def estimate_s(self, row_launches: int) -> float:
        """Seconds that so many launches of one row take, by the times seen so far."""
        known = self.row_launches > 0
        return row_launches * (self.spent_s / self.row_launches if known else self.planned_s)

    def left_s(self) -> float:
        """What is left; infinite without a limit."""
        if self.limit_s is None:
            return float("inf")
        return self.limit_s - self.used_s - (self.clock() - self.started_s)

    def allows(self, row_launches: int) -> bool:
        """Whether that many launches of one row can end in time."""
        return self.estimate_s(row_launches) <= self.left_s()

    def learn(self, row_launches: int, seconds: float) -> None:
        """Adds what was just measured."""
        self.spent_s += seconds
        self.row_launches += row_launches


class BudgetOver(Exception):
    """The budget ended before something was measured, or while it was."""


@dataclass(frozen=True)
class Batch:
    """Launches of rows that are to be taken in a stage of a series, of these two sides: BASE or
    HEAD. The second is slowed down by the fraction `planted`. `gate` is the folder of it all."""

    gate: Path
    series: str
    stage: int
    rows: Sequence[Row]
    launches: range
    sides: tuple[str, str]
    planted: float
    seed: int
    mode: str

    @property
    def folder(self) -> Path:
        """Where the launches go."""
        return stage_folder(self.gate, self.series, self.stage)


class Taker(Protocol):
    """What takes launches."""

    def take(self, batch: Batch, budget: Budget) -> list[Path]:
        """Measures into the batch's folder; returns what read_launches then reads, in order. Raises
        BudgetOver, and GpuliftError where nothing more can be measured."""

    def cost(self, rows: int, launches: int) -> int:
        """What so many launches of so many rows take, in launches of one row."""


@dataclass(frozen=True)
class Plan:
    """What is measured with what, and where to; `on_gpu` has the techniques that need a GPU,
    `launch_bound` those whose pace launches set."""

    setup: Setup
    folder: Path
    taker: Taker
    budget: Budget
    say: Say
    on_gpu: frozenset[str] = frozenset()
    launch_bound: frozenset[str] = frozenset()


def needed_row_launches(setup: Setup, taker: Taker) -> int:
    """Launches of one row that the screen and the controls take, confirmation of those included."""
    rows = len(setup.measurable)
    control = taker.cost(min(NULL_ROWS, rows), _launches_of_control())
    return taker.cost(rows, GatePlan(rows).screen_launches) + len((NULL, PLANTED)) * control


def measure(gate: Plan) -> Evidence:
    """Measures everything into the folder; stops early where a control failed.

    What a budget leaves undone stays inconclusive, and one that ends while something is measured
    breaks the gate off. Throws GpuliftError when it cannot even hold the screen and the controls.
    """
    _require_time(gate, needed_row_launches(gate.setup, gate.taker), 0)
    save(gate.folder, gate.setup)
    try:
        return _measure_in_time(gate)
    except BudgetOver:
        gate.say(
            f"the budget of {gate.budget.limit_s:.0f} s broke the gate off: what was measured is"
            f" kept in {gate.folder}; {MORE_TIME}"
        )
        return read_evidence(gate.folder)


def _measure_in_time(gate: Plan) -> Evidence:
    evidence = Evidence(gate.setup)
    if not gate.setup.measurable:
        return evidence
    evidence = _screen_cases(gate, evidence)
    sure = _all_pass(gate, [rows_control(evidence), *hardware_control(evidence)])
    if sure and needs_controls(evidence):
        evidence = _judge_by_controls(gate, evidence)
    return _ask_base_alone(gate, evidence)


def _judge_by_controls(gate: Plan, evidence: Evidence) -> Evidence:
    """The controls, and where they pass the confirmation."""
    rows = tuple(
        choose_null_rows(
            control_rows(evidence), gate.on_gpu, gate.launch_bound, evidence.setup.seed
        )
    )
    names = ", ".join(row.id for row in rows)
    evidence = _saved(gate, evidence, replace(evidence.setup, null_rows=rows))
    gate.say(f"control {NULL}: {names}")
    evidence = _control(gate, evidence, NULL)
    if not _all_pass(gate, [null_control(evidence)]):
        return evidence
    size = planted_size(evidence)
    evidence = _saved(gate, evidence, replace(evidence.setup, planted_size=size))
    gate.say(f"control {PLANTED}, {percent(size)} slower on purpose: {names}")
    evidence = _control(gate, evidence, PLANTED)
    if not _all_pass(gate, [planted_control(evidence)]):
        return evidence
    return _confirm(gate, evidence, CASES, evidence.setup.measurable)


def _all_pass(gate: Plan, controls: Sequence[Control]) -> bool:
    """Whether the controls so far allow to go on; says which one does not."""
    for control in controls:
        if not control.passed:
            how = "is not finished" if control.unfinished else "failed"
            gate.say(f"control {control.name} {how}, so nothing is confirmed: {control.said}")
    return all(control.passed for control in controls)


def _ask_base_alone(gate: Plan, evidence: Evidence) -> Evidence:
    """Base against a copy of itself where a process broke that held both builds."""
    rows = of_unknown_side(evidence)
    if not rows:
        return evidence
    if not gate.budget.allows(gate.taker.cost(len(rows), PILOT)):
        gate.say(f"the budget ends here: whether base or head broke {len(rows)} is not tried")
        return evidence
    gate.say(f"base against a copy of itself in {len(rows)} that broke: is it the head?")
    return _stage(gate, evidence, ALONE, 1, rows, range(PILOT))


def _screen_cases(gate: Plan, evidence: Evidence) -> Evidence:
    setup = evidence.setup
    launches = GatePlan(len(setup.measurable)).screen_launches
    gate.say(f"screen: {len(setup.measurable)} comparisons x {launches} launches")
    evidence = _stage(gate, evidence, CASES, 1, setup.measurable, range(PILOT))
    rows = sound(evidence)
    measured = gate.taker.cost(len(setup.measurable), PILOT)
    needed = needed_row_launches(setup, gate.taker) - measured
    _require_time(gate, needed, 1)
    if not rows:
        return evidence
    evidence = _stage(gate, evidence, CASES, 1, rows, range(PILOT, launches))
    return _screen_on(gate, evidence, CASES, rows)


def _screen_on(gate: Plan, evidence: Evidence, series: str, rows: Sequence[Row]) -> Evidence:
    """More launches of the rows in which too little would have been seen, as far as the budget
    allows; what it does not allow is judged by the launches that are there."""
    plan = plan_of(evidence)
    kept = _launches_to_come(gate, evidence, series)
    for before, look in pairwise(plan.screens):
        held = evidence.of(series)
        noisy = [
            row
            for row in rows
            if next_screen(row, held, evidence.setup.margins(row), plan) == look
            and not (series == CASES and row in evidence.setup.unsteady)
        ]
        if not noisy:
            continue
        more = gate.taker.cost(len(noisy), look - before)
        allows = partial(_allows, gate, len(noisy), kept)
        why = why_stop(noisy, series, evidence, (before, *plan.screens), allows)
        if why or not allows(look - before):
            more_s, kept_s = gate.budget.estimate_s(more), gate.budget.estimate_s(kept)
            gate.say(
                why
                or f"the budget ends here: {len(noisy)} of {series} vary too much for {before}"
                f" launches; {look} of each would take {more_s:.0f} s more, with {kept_s:.0f} s to"
                f" keep for the controls and {max(0.0, gate.budget.left_s()):.0f} s left"
            )
            if series == CASES:
                return evidence
            open_ones = (*evidence.setup.out_of_time, series)
            return _saved(gate, evidence, replace(evidence.setup, out_of_time=open_ones))
        gate.say(f"screen: {len(noisy)} of {series} vary, {look} launches in all")
        evidence = _stage(gate, evidence, series, 1, noisy, range(before, look))
    return evidence


def _allows(gate: Plan, rows: int, kept: int, launches: int) -> bool:
    return gate.budget.allows(gate.taker.cost(rows, launches) + kept)


def _saved(gate: Plan, evidence: Evidence, setup: Setup) -> Evidence:
    save(gate.folder, setup)
    return replace(evidence, setup=setup)


def _control(gate: Plan, evidence: Evidence, series: str) -> Evidence:
    rows, launches = evidence.setup.null_rows, plan_of(evidence).screen_launches
    if evidence.setup.mode == COMMANDS and series == NULL:
        # Enough to say how large a slow-down to plant; the rows need the time more.
        evidence = _stage(gate, evidence, series, 1, rows, range(NULL_OF_COMMANDS))
    else:
        evidence = _stage(gate, evidence, series, 1, rows, range(launches))
        evidence = _screen_on(gate, evidence, series, rows)
    return _confirm(gate, evidence, series, rows)


def _confirm(gate: Plan, evidence: Evidence, series: str, rows: Sequence[Row]) -> Evidence:
    """Takes looks with more and more fresh launches until every row is decided.

    Where the budget ends first, the set-up says so. The null control leaves time for the planted.
    """
    plan, before = plan_of(evidence), 0
    kept = _launches_to_come(gate, evidence, series)
    for look in plan.looks:
        held = evidence.of(series)
        open_rows = [
            row for row in rows if next_look(row, held, evidence.setup.margins(row), plan) == look
        ]
        if not open_rows:
            continue
        more = gate.taker.cost(len(open_rows), look - before)
        allows = partial(_allows, gate, len(open_rows), kept)
        why = why_stop(open_rows, series, evidence, (before, *plan.looks), allows)
        if why or not allows(look - before):
            needed_s = gate.budget.estimate_s(more)
            gate.say(
                why
                or f"the budget ends here: confirming {len(open_rows)} of {series} would take"
                f" {needed_s:.0f} s more, and {max(0.0, gate.budget.left_s()):.0f} s are left"
                + (" with the planted control still to come" if kept else "")
            )
            open_ones = (*evidence.setup.out_of_time, series)
            return _saved(gate, evidence, replace(evidence.setup, out_of_time=open_ones))
        gate.say(f"confirmation: {len(open_rows)} of {series}, {look} fresh launches in all")
        evidence = _stage(gate, evidence, series, 2, open_rows, range(before, look))
        before = look
    return evidence


def _launches_to_come(gate: Plan, evidence: Evidence, series: str) -> int:
    """Of one row, for the controls that follow after what is measured now."""
    controls = {CASES: 2, NULL: 1}.get(series, 0) if not evidence.setup.planted_size else 0
    rows = min(NULL_ROWS, len(evidence.setup.measurable))
    # How long a command takes is known less well than how long windows do; while nothing is told
    # that controls would have to hold, the rows need the time more.
    spare = 2 if evidence.setup.mode == COMMANDS and needs_controls(evidence) else 1
    return spare * controls * gate.taker.cost(rows, _launches_of_control())


def _launches_of_control() -> int:
    """Of one row: the screen and the first look of its confirmation."""
    plan = GatePlan(1)
    return plan.screen_launches + plan.looks[0]


def _stage(
    gate: Plan, evidence: Evidence, series: str, stage: int, rows: Sequence[Row], launches: range
) -> Evidence:
    """Measures these launches of the rows. Their number is even, so that the arm of either build
    allocates first in half of them."""
    setup = evidence.setup
    batch = Batch(
        gate=gate.folder,
        series=series,
        stage=stage,
        rows=rows,
        launches=launches,
        sides={
            CASES: (BASE, HEAD),
            NULL: (BASE, BASE),
            PLANTED: (HEAD, HEAD),
            ALONE: (BASE, BASE),
        }[series],
        planted=setup.planted_size if series == PLANTED else 0.0,
        seed=_stage_seed(setup.seed, series, stage),
        mode=setup.mode,
    )
    started_s = gate.budget.clock()
    try:
        folders = gate.taker.take(batch, gate.budget)
    except BudgetOver:
        save(gate.folder, replace(setup, out_of_time=(*setup.out_of_time, series)))
        raise
    gate.budget.learn(gate.taker.cost(len(rows), len(launches)), gate.budget.clock() - started_s)
    for folder in folders:
        # Only what is new is read; the rest of a gate's records is known already.
        more = read_launches(folder, setup.mode, setup.rows_of(series))
        evidence = evidence.plus(series, stage, more)
    return evidence


def _stage_seed(seed: int, series: str, stage: int) -> int:
    """Every stage has launches, and so inputs and orders, of its own."""
    return (seed * len(SERIES) * 2 + SERIES.index(series) * 2 + stage) * SEEDS_PER_STAGE


def _require_time(gate: Plan, row_launches: int, done: int) -> None:
    if gate.budget.allows(row_launches):
        return
    limit_s = gate.budget.limit_s or 0.0
    used_s = limit_s - gate.budget.left_s()
    by = "times seen so far" if done else "planned times"
    building = f", {gate.budget.used_s:.0f} s of which went into builds" if _built(gate) else ""
    raise GpuliftError(
        f"--budget {limit_s:.0f}s is too small: the screen and the controls alone need about"
        f" {used_s + gate.budget.estimate_s(row_launches):.0f} s by the {by}{building}; {MORE_TIME}"
    )


def _built(gate: Plan) -> bool:
    """Whether builds took a time worth a word."""
    return gate.budget.used_s >= 1
