"""What tables, figures and reports show, computed once from the records of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from gpulift import stats
from gpulift.analysis.facts import Facts, facts
from gpulift.analysis.reference import Reference
from gpulift.records.model import IMPORT, Arm, Cost, Record
from gpulift.records.read import Run
from gpulift.records.throttle import throttle_of
from gpulift.stats import Estimate

if TYPE_CHECKING:
    from gpulift.analysis.over_runs import ModelFigure
    from gpulift.qualify.checks import CheckResult

BURST_BLOCKS = 8  # planned ones of a burst, where a record below schema 1.7 does not say it
BUSY_CORES = 1.0  # of others: as much as one process that works all the time
TECHNIQUE = "technique"  # the kind of record that says what a technique is worth
SEVERITY = ("ok", "skipped", "failed", "error")


@dataclass(frozen=True)
class Case:
    """The launches of one case of one technique."""

    technique: str
    case_id: str
    records: tuple[Record, ...]

    @cached_property
    def first(self) -> Record:
        """The record whose texts stand for the case: a measured one where there is one."""
        return next((r for r in self.records if r.outcome == "ok"), self.records[0])

    @cached_property
    def measured(self) -> tuple[Record, ...]:
        """The launches with results."""
        return tuple(record for record in self.records if record.outcome == "ok")

    @cached_property
    def arms(self) -> Mapping[str, tuple[Arm, ...]]:
        """By name, what the launches measured of each arm that any of them measured."""
        names = dict.fromkeys(arm.name for record in self.measured for arm in record.arms)
        found = {name: tuple(stats.measured_arms(self.measured, name)) for name in names}
        return {name: launches for name, launches in found.items() if launches}

    @cached_property
    def times_s(self) -> Mapping[str, Estimate]:
        """Seconds of a step of each arm that was measured."""
        return {name: stats.time_over(launches) for name, launches in self.arms.items()}

    def record_ids(self, *arms: str) -> tuple[str, ...]:
        """Citations of the launches in which all these arms were measured."""
        return tuple(
            record.citation
            for record in self.measured
            if all(stats.measured_arms([record], name) for name in arms)
        )


@dataclass(frozen=True)
class Roof:
    """The best rate that a ceiling technique reached on this machine, under one roof and regime."""

    name: str
    regime: str
    rate: Estimate
    unit: str
    case: Case
    arm: str
    peak: float | None
    power_w: float | None
    sm_clock_hz: float | None
    throttle: tuple[str, ...]

    @property
    def power(self) -> str:
        """Median power; telemetry is of a whole case, so that all of its arms have a part in it."""
        if self.power_w is None:
            return ""
        shared = " over all arms" if len(self.case.first.arms) > 1 else ""
        return f"{self.power_w:.0f} W{shared}"

    @property
    def fraction(self) -> float | None:
        """Of the datasheet's figure."""
        return self.rate.value / self.peak if self.peak else None

    @property
    def record_ids(self) -> tuple[str, ...]:
        """Citations of the launches behind the rate."""
        return self.case.record_ids(self.arm)


@dataclass(frozen=True)
class UnitCost:
    """Time of one item (a launch, say) of a ceiling arm that no roof bounds."""

    case: Case
    arm: str
    time_s: Estimate
    clock: str
    held: bool  # every window was queued behind the holding kernel

    @property
    def remark(self) -> str:
        """What bounds the time, where it is not what the arm asks about."""
        bound = self.clock == "device" and not self.held
        return "bound by the host's launch rate: not held" if bound else ""

    @property
    def record_ids(self) -> tuple[str, ...]:
        """Citations of the launches behind the time."""
        return self.case.record_ids(self.arm)


@dataclass(frozen=True)
class Worth:
    """What one arm is worth against the baseline in one case.

    `throttle` and the case's telemetry are of all its arms together; the rest is of the arm alone.
    """

    case: Case
    arm: str
    baseline: str
    pair: stats.PairRatio
    time_s: Estimate
    baseline_time_s: Estimate
    roof_fraction: float | None
    facts: Facts
    baseline_facts: Facts
    check_error: float | None
    check_tolerance: float | None
    spread: float | None
    rate: Estimate | None = None  # of work per second, where the cost says how much work a step is
    rate_unit: str = ""
    items_per_s: Estimate | None = None  # where the cost names its items
    item: str = ""
    clock: str = ""
    sm_clock_hz: float | None = None
    throttle: tuple[str, ...] = ()
    cpu_ratio: Estimate | None = None  # CPU seconds of a step, arm / baseline
    energy_ratio: Estimate | None = None  # joules, where every window tells them
    roof_from: str = ""  # where another run of the machine measured the roof: which, on which card
    of_model: ModelFigure | None = None  # the same over all known runs of the model

    @property
    def on_model(self) -> str:
        """`5.31× [5.02, 5.61], 12 runs, 9 cards`; empty where too few runs speak of the model."""
        return self.of_model.shown if self.of_model and self.of_model.of_model else ""

    @property
    def memory_bytes(self) -> int | None:
        """Peak of the arm: of the device where it used any, else of the host."""
        return self.facts.memory_bytes

    @property
    def baseline_memory_bytes(self) -> int | None:
        """Peak of the baseline."""
        return self.baseline_facts.memory_bytes

    @property
    def energy_j(self) -> float | None:
        """Joules of one step; None where they are not known."""
        return self.facts.joules

    @property
    def baseline_energy_j(self) -> float | None:
        """Joules of one step of the baseline."""
        return self.baseline_facts.joules

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds of one step; None where they were not counted."""
        return self.facts.cpu_s

    @property
    def baseline_cpu_s(self) -> float | None:
        """CPU seconds of one step of the baseline."""
        return self.baseline_facts.cpu_s

    @property
    def checked(self) -> bool:
        """Whether its result was compared with anything."""
        return self.facts.checked

    @property
    def record_ids(self) -> tuple[str, ...]:
        """Citations of the launches behind the speedup."""
        return self.case.record_ids(self.arm, self.baseline)

    @property
    def prediction(self) -> str:
        """What was expected before the first run, in the technique's own words."""
        return self.case.first.expectation

    @property
    def speedup(self) -> Estimate:
        """Baseline time / arm time."""
        return self.pair.speedup

    @property
    def saved_s(self) -> float | None:
        """Seconds that a step of the arm is shorter than one of its baseline; None where one does
        more than the other."""
        return None if self.pair.per_item else self.baseline_time_s.value - self.time_s.value

    @property
    def of_control(self) -> bool:
        """Whether the gain is not the technique's own: of a control, or over one."""
        return any(map(self.case.first.is_control, (self.arm, self.baseline)))

    @property
    def technique(self) -> str:
        """Id of the technique."""
        return self.case.technique

    @property
    def key(self) -> tuple[str, str, str]:
        """The same for the same comparison on another machine."""
        return (self.case.technique, self.case.case_id, self.arm)


@dataclass(frozen=True)
class Problem:
    """A case or an arm that was not measured, or a result that was refused."""

    technique: str
    case_id: str
    arm: str
    outcome: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class Summary:
    """One run, ready to be shown."""

    run: Run
    reference: Reference | None
    roofs: tuple[Roof, ...]
    unit_costs: tuple[UnitCost, ...]
    worths: tuple[Worth, ...]
    problems: tuple[Problem, ...]
    cases: tuple[Case, ...]  # of techniques
    health: tuple[CheckResult, ...] | None = None  # of the card, where it is judged already

    @property
    def broken(self) -> tuple[Problem, ...]:
        """What failed or ended in an error; a skip is a result."""
        return tuple(p for p in self.problems if p.outcome in ("failed", "error"))

    @property
    def skipped(self) -> tuple[Problem, ...]:
        """What could not run here."""
        return tuple(p for p in self.problems if p.outcome == "skipped")

    @cached_property
    def beside(self) -> tuple[Problem, ...]:
        """What has no result of duets and of other tools' records: no check judges it."""
        kinds = dict.fromkeys(record.kind for record in self.run.records)
        cases = (
            c for kind in kinds if kind != TECHNIQUE for c in group_cases(self.run.records, kind)
        )
        return tuple(problem for case in cases for problem in _problems(case))

    @cached_property
    def _by_technique(self) -> Mapping[str, tuple[Worth, ...]]:
        found: dict[str, list[Worth]] = {}
        for row in self.worths:
            found.setdefault(row.technique, []).append(row)
        return {technique: tuple(rows) for technique, rows in found.items()}

    def worths_of(self, technique: str) -> tuple[Worth, ...]:
        """The comparisons of one technique, best first."""
        return self._by_technique.get(technique, ())

    @property
    def notes(self) -> tuple[tuple[tuple[Case, ...], str, str], ...]:
        """What techniques noted about their cases: the algorithm that a search chose, say. A value
        that all cases with such a note share (torch's version) stands there once, for all."""
        by_key: dict[str, list[tuple[Case, str]]] = {}
        for case in self.cases:
            for key, value in case.first.notes.items():
                by_key.setdefault(key, []).append((case, value))
        found: list[tuple[tuple[Case, ...], str, str]] = []
        for key, noted in by_key.items():
            if len({value for _, value in noted}) == 1:
                found.append((tuple(case for case, _ in noted), key, noted[0][1]))
            else:
                found += [((case,), key, value) for case, value in noted]
        return tuple(found)

    @property
    def total_s(self) -> float:
        """Time of all cases together."""
        return sum(record.time_s.get("total", 0.0) for record in self.run.records)

    @property
    def measuring_share(self) -> float | None:
        """Share of that time inside windows and their lead-ins."""
        keys = ("windows", "lead_in")
        inside = sum(r.time_s.get(key, 0.0) for r in self.run.records for key in keys)
        return inside / self.total_s if self.total_s > 0 else None

    @property
    def marks(self) -> tuple[str, ...]:
        """What a reader must know before citing: debug build, uncommitted changes and such."""
        builds = [r.context.build for r in self.run.records if r.kind != IMPORT]
        marks = []
        cards = sorted({gpu.card for r in self.run.records if (gpu := r.context.gpu) is not None})
        if len(cards) > 1:
            marks.append(f"records of several cards: {', '.join(cards)}")
        drivers = sorted({record.context.driver for record in self.run.records})
        if len(drivers) > 1:
            marks.append(f"records of several drivers: {', '.join(drivers)}")
        marks += sorted({build.doubt for build in builds} - {""})
        if any(build.type not in ("", "Release", "RelWithDebInfo") for build in builds):
            marks.append("not an optimised build")
        if not self.run.full:
            marks.append("quick cases only")
        return (*marks, *_block_marks(self.run.records))


def _block_marks(records: Sequence[Record]) -> list[str]:
    """What was discarded, begun anew, or measured with fewer blocks than planned."""
    marks = []
    discarded = sum(record.discarded_blocks for record in records)
    if discarded:
        # Schema 1.0 counted both together.
        mixed = any(r.schema == "1.0" and r.discarded_blocks for r in records)
        why = "the hardware slowed down" + (" or the pace changed" if mixed else "")
        marks.append(f"{_count(discarded, 'block')} discarded: {why}")
    restarts = sum(record.restarts for record in records)
    if restarts:
        marks.append(f"{_count(restarts, 'restart')} of a case: the pace changed")
    short = {record.subject for record in records if _cut_short(record)}
    if short:
        cases = _count(len(short), "case")
        marks.append(f"{cases} with fewer blocks than planned in a launch")
    loaded = {record.subject for record in records if _others_worked(record)}
    if loaded:
        cases = _count(len(loaded), "case")
        marks.append(f"{cases} while other processes kept a core or more busy")
    return marks


def _cut_short(record: Record) -> bool:
    if record.stop is None:
        return False
    planned = record.stop.planned_blocks
    if planned is None:
        planned = BURST_BLOCKS if record.regime == "burst" else 0
    return record.stop.blocks < planned


def _others_worked(record: Record) -> bool:
    load = record.host_load
    return load is not None and load.other_cores + load.stolen_cores >= BUSY_CORES


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def summarise(run: Run, reference: Reference | None = None) -> Summary:
    """All rows of a run: roofs, speedups (best first) and what was not measured."""
    cases = group_cases(run.records, TECHNIQUE)
    roofs = _roofs([case for case in cases if case.first.ceiling], reference)
    worths = [row for case in cases if not case.first.ceiling for row in _worths(case, roofs)]
    return Summary(
        run=run,
        reference=reference,
        roofs=tuple(roofs),
        unit_costs=tuple(_unit_costs([case for case in cases if case.first.ceiling])),
        worths=tuple(sorted(worths, key=lambda row: -row.speedup.value)),
        problems=tuple(problem for case in cases for problem in _problems(case)),
        cases=tuple(cases),
    )


def with_roofs(summary: Summary, others: Sequence[Summary]) -> Summary:
    """The run with shares of roofs that other runs of its machine measured, where it has none."""
    found: dict[tuple[str, str], tuple[Roof, str]] = {}
    for other in others:
        if other.run.machine == summary.run.machine and other is not summary:
            source = _source(summary, other)
            for roof in other.roofs:
                found.setdefault((roof.name, roof.regime), (roof, source))
    worths = tuple(_under_roof(row, found) for row in summary.worths)
    return replace(summary, worths=worths) if found else summary


def _under_roof(row: Worth, roofs: Mapping[tuple[str, str], tuple[Roof, str]]) -> Worth:
    cost = row.facts.cost
    known = roofs.get((cost.roof, row.case.first.regime)) if cost else None
    if row.roof_fraction is not None or row.rate is None or known is None:
        return row
    roof, source = known
    return replace(row, roof_fraction=row.rate.value / roof.rate.value, roof_from=source)


def _source(summary: Summary, other: Summary) -> str:
    """`2026-11-21-3dba248, on another card`."""
    cards = [one.run.records[0].context.gpu for one in (summary, other)]
    names = {gpu.card if gpu else "" for gpu in cards}
    return f"{other.run.folder.name}, on another card" if len(names) > 1 else other.run.folder.name


def headline(summary: Summary) -> list[Worth]:
    """For each technique the comparison that gains most and the one that gains least: of controls
    only where there is nothing else."""
    chosen: list[Worth] = []
    for technique in dict.fromkeys(row.technique for row in summary.worths):
        every = summary.worths_of(technique)
        rows = [row for row in every if not row.of_control] or every
        chosen += rows if len(rows) < 2 else [rows[0], rows[-1]]
    return chosen


def group_cases(records: Sequence[Record], kind: str) -> list[Case]:
    """The records of one kind, case by case (a duet: arm by arm), launches in order."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in sorted(records, key=lambda r: (r.technique, r.launch)):
        if record.kind == kind:
            groups.setdefault(record.subject, []).append(record)
    return [Case(found[0].technique, found[0].case_id, tuple(found)) for found in groups.values()]


def _roofs(cases: Sequence[Case], reference: Reference | None) -> list[Roof]:
    best: dict[tuple[str, str], Roof] = {}
    for case in cases:
        for roof in _rates(case, reference):
            key = (roof.name, roof.regime)
            if key not in best or best[key].rate.value < roof.rate.value:
                best[key] = roof
    return [best[key] for key in sorted(best)]


def _rates(case: Case, reference: Reference | None) -> list[Roof]:
    found = []
    for arm in case.first.arms:
        time = case.times_s.get(arm.name)
        work = stats.work_for_roof(arm.cost) if arm.cost else 0.0
        if time is None or arm.cost is None or not arm.cost.roof or work <= 0:
            continue
        launches = case.arms[arm.name]
        found.append(
            Roof(
                name=arm.cost.roof,
                regime=case.first.regime,
                rate=stats.rate(time, work),
                unit=work_of(arm.cost)[1],
                case=case,
                arm=arm.name,
                peak=reference.peak(arm.cost.roof) if reference else None,
                power_w=_telemetry_median(case, "power_w"),
                throttle=_throttle(case),
                sm_clock_hz=_arm_clock(launches) or _telemetry_median(case, "sm_clock_hz"),
            )
        )
    return found


def _unit_costs(cases: Sequence[Case]) -> list[UnitCost]:
    found = []
    for case in cases:
        for arm in case.first.arms:
            time = case.times_s.get(arm.name)
            if time and arm.cost and not arm.cost.roof and arm.cost.items > 0:
                held = all(one.held for one in case.arms[arm.name])
                one_s = time.scaled(1 / arm.cost.items)
                found.append(UnitCost(case, arm.name, one_s, arm.clock, held))
    return found


def _worths(case: Case, roofs: Sequence[Roof]) -> list[Worth]:
    baseline = next((arm for arm in case.first.arms if arm.role == "baseline"), None)
    if baseline is None:
        return []
    time_s = case.times_s.get(baseline.name)
    if time_s is None:
        return []
    base = _Baseline(baseline.name, time_s, facts(case.arms[baseline.name]))
    found = (_worth(case, arm, base, roofs) for arm in case.first.arms if arm is not baseline)
    return [row for row in found if row is not None]


@dataclass(frozen=True)
class _Baseline:
    """What all arms of a case are held against."""

    name: str
    time_s: Estimate
    facts: Facts


def _worth(case: Case, arm: Arm, base: _Baseline, roofs: Sequence[Roof]) -> Worth | None:
    """Arm against baseline, or None where no launch has both."""
    pair = stats.pair_ratio(case.measured, arm.name, base.name)
    time = case.times_s.get(arm.name)
    if pair is None or time is None:
        return None
    launches = case.arms[arm.name]
    work, unit = work_of(arm.cost)
    item, items = (arm.cost.item, arm.cost.items) if arm.cost else ("", 0.0)
    return Worth(
        case=case,
        arm=arm.name,
        baseline=base.name,
        pair=pair,
        time_s=time,
        baseline_time_s=base.time_s,
        roof_fraction=_roof_fraction(case.first.regime, arm, time, roofs),
        facts=facts(launches),
        baseline_facts=base.facts,
        check_error=_worst_check(launches),
        check_tolerance=arm.check_tolerance,
        spread=stats.spread(launches),
        rate=stats.rate(time, work) if work > 0 else None,
        rate_unit=unit,
        items_per_s=stats.rate(time, items) if item and items > 0 else None,
        item=item,
        clock=arm.clock,
        sm_clock_hz=_arm_clock(launches),
        throttle=_throttle(case),
        cpu_ratio=stats.cpu_ratio(case.measured, arm.name, base.name),
        energy_ratio=stats.energy_ratio(case.measured, arm.name, base.name),
    )


def work_of(cost: Cost | None) -> tuple[float, str]:
    """Work of a step and the unit of its rate: what its roof counts, else the first that is known.

    Zero and no unit where the cost tells nothing.
    """
    if cost is None:
        return 0.0, ""
    kinds = [(cost.flops, "FLOP/s"), (cost.bytes, "B/s"), (cost.items, "items/s")]
    if cost.roof:
        unit = "FLOP/s" if stats.counts_operations(cost.roof) else "B/s"
        kinds.insert(0, (stats.work_for_roof(cost), unit))
    return next((kind for kind in kinds if kind[0] > 0), (0.0, ""))


def _roof_fraction(regime: str, arm: Arm, time: Estimate, roofs: Sequence[Roof]) -> float | None:
    if arm.cost is None:
        return None
    for roof in roofs:
        if roof.name == arm.cost.roof and roof.regime == regime:
            return stats.rate(time, stats.work_for_roof(arm.cost)).value / roof.rate.value
    return None


def _worst_check(launches: Sequence[Arm]) -> float | None:
    return max((a.check_error for a in launches if a.check_error is not None), default=None)


def _arm_clock(launches: Sequence[Arm]) -> float | None:
    return stats.median_over([hz for one in launches for hz in one.windows.sm_clock_hz])


def _telemetry_median(case: Case, key: str) -> float | None:
    found = [
        r.telemetry.ranges[key].median
        for r in case.measured
        if r.telemetry is not None and key in r.telemetry.ranges
    ]
    return stats.median_over(found)


def _throttle(case: Case) -> tuple[str, ...]:
    """What held the clock down in any launch of the case, and of how many nobody knows it.

    A case without telemetry has none: why, its machine says once.
    """
    seen = throttle_of([record for record in case.measured if record.telemetry])
    return (*seen.reasons, f"throttle {seen.unread_words}") if seen.unread else seen.reasons


def _problems(case: Case) -> list[Problem]:
    worst = max(case.records, key=lambda record: SEVERITY.index(record.outcome))
    problems = []
    if worst.outcome != "ok":
        problems.append(
            Problem(case.technique, case.case_id, "", worst.outcome, worst.reason, worst.remedy)
        )
    seen: set[str] = set()
    for record in case.records:
        for arm in record.arms:
            if arm.outcome != "ok" and arm.name not in seen and record.outcome == "ok":
                seen.add(arm.name)
                problems.append(
                    Problem(
                        case.technique, case.case_id, arm.name, arm.outcome, arm.reason, arm.remedy
                    )
                )
    return problems
