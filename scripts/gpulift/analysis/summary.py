"""What tables, figures and reports show, computed once from the records of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpulift.analysis import bounds
from gpulift.analysis.bounds import (
    HOST,
    PROCESSOR,
    SLEEP,
    SLEEPS,
    Bound,
    bound_of,
    host_bound,
)
from gpulift.analysis.facts import Facts, facts
from gpulift.analysis.over_runs import ModelFigure
from gpulift.analysis.reference import Reference
from gpulift.engine.runs import RUNNING
from gpulift.ground.estimate import Estimate
from gpulift.ground.text import counted
from gpulift.records.model import IMPORT, OUTCOMES, Arm, Cost, Record
from gpulift.records.read import Run, lacks_launches
from gpulift.records.throttle import throttle_of
from gpulift.records.together import read_state
from gpulift.verdicts import stats
from gpulift.verdicts.cases import TECHNIQUE, Case, group_cases

BURST_BLOCKS = 8  # planned ones of a burst, where a record below schema 1.7 does not say it
BUSY_CORES = 1.0  # of others: as much as one process that works all the time
OF_HOST = ("host_memory", "host_gemm/", "storage/")  # how roofs begin that no card bounds
SAME_MEMORY = 0.01  # of two hosts: kernels keep a part of it
SAME_CLOCK = 0.02  # that two SM clocks may be apart
MEMORY, COPY = "device_memory", "copy"  # a roof, and the arm that reads as much of it as it writes
AT_ODDS = 0.02  # of a ratio, on the log scale: what three digits of two times cannot explain
PLAN = "plan"  # of notes: "plan", "plan/ARM"


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
    peak_w: float | None  # the highest sample of any launch
    sm_clock_hz: float | None
    throttle: tuple[str, ...]
    copied: Estimate | None = None  # of device memory, the rate of its best copy

    def share(self, rate: Estimate) -> float:
        """Of this roof that a step reaches. Steps that read and write memory could not go faster
        than a copy, though a kernel that does one of the two does."""
        return rate.value / (self.copied or self.rate).value

    @property
    def power(self) -> str:
        """`peak 776 W`, of any arm of the case: in its median are the waits between windows."""
        return "" if self.peak_w is None else f"peak {self.peak_w:.0f} W"

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
    baseline_sm_clock_hz: float | None = None
    throttle: tuple[str, ...] = ()
    cpu_ratio: Estimate | None = None  # CPU seconds of a step, arm / baseline
    energy_ratio: Estimate | None = None  # joules, where every window tells them
    roof_from: str = ""  # where another run of the machine measured the roof: which, on which card
    of_model: ModelFigure | None = None  # the same over all known runs of the model

    @property
    def on_model(self) -> str:
        """`5.31× [5.02, 5.61], 12 runs, 9 cards`; empty where too few runs speak of the model."""
        return self.of_model.shown if self.of_model and self.of_model.of_model else ""

    @cached_property
    def bounds(self) -> tuple[Bound, Bound]:
        """What sets the pace of the arm and of its baseline."""
        arm, baseline = (bound_of(self.case.measured, one) for one in (self.arm, self.baseline))
        return arm, baseline

    @property
    def bound(self) -> str:
        """`device / host 0.98, 768 launches a step`, the arm first; one where both are alike."""
        return bounds.shown(self.bounds)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What has to stand beside its ratio: that an arm waits for the host, and that others kept
        that busy, that it sleeps, or that the two ran at other clocks."""
        arm, baseline = self.bounds
        waits = host_bound({self.arm: arm, self.baseline: baseline})
        sleeps = SLEEPS if SLEEP in (arm.kind, baseline.kind) else ""
        return tuple(filter(None, (sleeps or waits, self.disturbed, self.clocks)))

    @property
    def disturbed(self) -> str:
        """`others kept 2.2 cores busy`, where its pace is that of the host; empty below one."""
        most = max(map(others_cores, self.case.measured))
        hangs_on_host = any(one.kind in (HOST, PROCESSOR) for one in self.bounds)
        return f"others kept {most:.1f} cores busy" if hangs_on_host and most >= BUSY_CORES else ""

    @property
    def clocks(self) -> str:
        """`arms ran at 1.98 and 1.74 GHz`, the arm first; empty where they ran alike, and where one
        is not known."""
        arm, baseline = self.sm_clock_hz, self.baseline_sm_clock_hz
        if not arm or not baseline or max(arm, baseline) < min(arm, baseline) * (1 + SAME_CLOCK):
            return ""
        return f"arms ran at {arm / 1e9:.2f} and {baseline / 1e9:.2f} GHz"

    @property
    def memory_bytes(self) -> int | None:
        """Peak of the arm: of the device where it used any, else of the host."""
        return self.facts.memory_bytes

    @property
    def energy_j(self) -> float | None:
        """Joules of one step; None where they are not known."""
        return self.facts.joules

    @property
    def baseline_energy_j(self) -> float | None:
        """Joules of one step of the baseline."""
        return self.baseline_facts.joules

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
        """Seconds that a step of the arm is shorter than one of its baseline, as the ratio has it;
        None where one does more than the other."""
        gain = 1 - self.pair.ratio.value
        return None if self.pair.per_item else self.baseline_time_s.value * gain

    @property
    def at_odds(self) -> bool:
        """Whether the two times divide to another ratio: they are medians of all windows, which
        follow the machine's pace, while the ratio is of neighbouring windows."""
        quotient = self.baseline_time_s.value / self.time_s.value
        apart = abs(math.log(quotient / self.speedup.value))
        return not self.pair.per_item and apart > AT_ODDS

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
        that all cases with such a note share (torch's version) stands there once, for all. Not
        the bytes of a plan, which later launches take and nobody reads."""
        by_key: dict[str, list[tuple[Case, str]]] = {}
        for case in self.cases:
            for key, value in case.first.notes.items():
                if key.partition("/")[0] != PLAN:
                    by_key.setdefault(key, []).append((case, value))
        found: list[tuple[tuple[Case, ...], str, str]] = []
        for key, noted in by_key.items():
            if len({value for _, value in noted}) == 1:
                found.append((tuple(case for case, _ in noted), key, noted[0][1]))
            else:
                found += [((case,), key, value) for case, value in noted]
        return tuple(found)

    @property
    def others_worked(self) -> str:
        """`1.6 of 2 cores`: most that others took while a case was measured; empty below one."""
        most = max(self.run.records, key=others_cores)
        taken, cores = others_cores(most), most.context.host.cores
        if taken < BUSY_CORES:
            return ""
        # They may work on cores that are not allowed to this process.
        return f"{taken:.1f} of {cores} cores" if cores and taken <= cores else f"{taken:.1f} cores"

    @cached_property
    def unfinished(self) -> bool:
        """Whether the run was left before its end, as run.json says; without one, as launches say
        that are missing."""
        state = read_state(self.run.folder)
        return state.get("state") == RUNNING if state else lacks_launches(self.run.records)

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
        if self.unfinished:
            marks.append("unfinished run")
        return (*marks, *_block_marks(self.run.records))


def _block_marks(records: Sequence[Record]) -> list[str]:
    """What was discarded, begun anew, or measured with fewer blocks than planned."""
    marks = []
    discarded = sum(record.discarded_blocks for record in records)
    if discarded:
        # Schema 1.0 counted both together.
        mixed = any(r.schema == "1.0" and r.discarded_blocks for r in records)
        why = "the hardware slowed down" + (" or the pace changed" if mixed else "")
        marks.append(f"{counted(discarded, 'block')} discarded: {why}")
    restarts = sum(record.restarts for record in records)
    if restarts:
        marks.append(f"{counted(restarts, 'restart')} of a case: the pace changed")
    short = {record.subject for record in records if _cut_short(record)}
    if short:
        cases = counted(len(short), "case")
        marks.append(f"{cases} with fewer blocks than planned in a launch")
    loaded = {record.subject for record in records if others_cores(record) >= BUSY_CORES}
    if loaded:
        cases = counted(len(loaded), "case")
        marks.append(f"{cases} while other processes kept a core or more busy")
    return marks


def _cut_short(record: Record) -> bool:
    if record.stop is None:
        return False
    planned = record.stop.planned_blocks
    if planned is None:
        planned = BURST_BLOCKS if record.regime == "burst" else 0
    return record.stop.blocks < planned


def others_cores(record: Record) -> float:
    """Those that other processes and other machines kept busy; 0 where that is not known."""
    load = record.host_load
    return load.other_cores + load.stolen_cores if load else 0.0


def summarise(run: Run, reference: Reference | None = None) -> Summary:
    """All rows of a run: roofs, speedups (best first) and what was not measured."""
    cases = group_cases(run.records, TECHNIQUE)
    swept = [case for case in cases if case.first.ceiling and not case.first.off_sweep]
    roofs = _roofs(swept, reference)
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
    """The run with shares of roofs that other runs of its machine measured, where it has none: of
    each roof from the run that was most alike."""
    found: dict[tuple[str, str], list[tuple[list[str], str, Roof]]] = {}
    for other in others:
        if other.run.model == summary.run.model and other is not summary:
            for roof in other.roofs:
                if (apart := _apart(summary, other, roof.name)) is not None:
                    source = ", ".join([other.run.folder.name, *apart])
                    found.setdefault((roof.name, roof.regime), []).append((apart, source, roof))
    nearest = {key: min(known, key=lambda one: len(one[0])) for key, known in found.items()}
    roofs = {key: (roof, source) for key, (_, source, roof) in nearest.items()}
    worths = tuple(_under_roof(row, roofs) for row in summary.worths)
    return replace(summary, worths=worths) if roofs else summary


def _under_roof(row: Worth, roofs: Mapping[tuple[str, str], tuple[Roof, str]]) -> Worth:
    cost = row.facts.cost
    known = roofs.get((cost.roof, row.case.first.pace)) if cost else None
    if row.roof_fraction is not None or row.rate is None or known is None:
        return row
    roof, source = known
    return replace(row, roof_fraction=roof.share(row.rate), roof_from=source)


def _apart(summary: Summary, other: Summary, roof: str) -> list[str] | None:
    """What sets the two apart that a roof of a host, or of a card, may hang on; None where it is
    another processor's."""
    mine, theirs = (one.run.records[0].context for one in (summary, other))
    if not roof.startswith(OF_HOST):
        cards = {one.gpu.card if one.gpu else "" for one in (mine, theirs)}
        return ["on another card"] if len(cards) > 1 else []
    hosts = (mine.host, theirs.host)
    ids = [one.facts.get("cpu_id") for one in hosts]
    if mine.host.cpu != theirs.host.cpu or (all(ids) and ids[0] != ids[1]):
        return None
    found = [] if all(ids) else ["on a processor that records do not tell"]
    bytes_of = [float(one.facts.get("memory_bytes") or 0) for one in hosts]
    alike = math.isclose(*bytes_of, rel_tol=SAME_MEMORY) and hosts[0].cores == hosts[1].cores
    return found if alike else [*found, "on a host of other cores or memory"]


def _roofs(cases: Sequence[Case], reference: Reference | None) -> list[Roof]:
    found: dict[tuple[str, str], list[Roof]] = {}
    for case in cases:
        for roof in rates_of(case, reference):
            found.setdefault((roof.name, roof.regime), []).append(roof)
    return [_best(roofs) for _, roofs in sorted(found.items()) if not all(map(_of_fixed, roofs))]


def is_fixed(case: Case) -> bool:
    """Whether it is of a product whose shape and algorithm no run searches: alone it is no roof."""
    return case.first.ceiling and case.first.case.get("product") == "fixed"


def _of_fixed(roof: Roof) -> bool:
    return is_fixed(roof.case)


def _best(roofs: Sequence[Roof]) -> Roof:
    """The fastest of one name and regime, which knows its fastest copy."""
    best = max(roofs, key=_per_s)
    copies = [one for one in roofs if one.name == MEMORY and one.arm == COPY]
    return replace(best, copied=max(copies, key=_per_s).rate) if copies else best


def _per_s(roof: Roof) -> float:
    return roof.rate.value


def rates_of(case: Case, reference: Reference | None = None) -> list[Roof]:
    """Of its arms that are under a roof."""
    found = []
    for arm in case.first.arms:
        launches = case.arms.get(arm.name, ())
        rate = stats.rate_over(launches, stats.work_for_roof) if launches else None
        if rate is None or arm.cost is None or not arm.cost.roof:
            continue
        found.append(
            Roof(
                name=arm.cost.roof,
                regime=case.first.regime,
                rate=rate,
                unit=work_of(arm.cost)[1],
                case=case,
                arm=arm.name,
                peak=reference.peak(arm.cost.roof) if reference else None,
                peak_w=highest(case.measured, "power_w"),
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
    baseline = next((arm.name for arm in case.first.arms if arm.role == "baseline"), None)
    if baseline is None:
        return []
    names = (arm.name for arm in case.first.arms if arm.name != baseline)
    found = (worth_over(case, name, baseline, roofs) for name in names)
    return [row for row in found if row is not None]


def worth_over(case: Case, arm: str, over: str, roofs: Sequence[Roof] = ()) -> Worth | None:
    """What an arm is worth against another of its case, which need not be the baseline; None where
    no launch has both."""
    time_s, found = case.times_s.get(over), case.first.arm(arm)
    if time_s is None or found is None:
        return None
    return _worth(case, found, _Baseline(over, time_s, facts(case, over)), roofs)


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
    item = arm.cost.item if arm.cost else ""
    return Worth(
        case=case,
        arm=arm.name,
        baseline=base.name,
        pair=pair,
        time_s=time,
        baseline_time_s=base.time_s,
        roof_fraction=roof_fraction(case.first.pace, launches, roofs),
        facts=facts(case, arm.name),
        baseline_facts=base.facts,
        check_error=_worst_check(launches),
        check_tolerance=arm.check_tolerance,
        spread=stats.spread(launches),
        rate=stats.rate_over(launches, work),
        rate_unit=work_of(arm.cost)[1],
        items_per_s=stats.rate_over(launches, stats.items) if item else None,
        item=item,
        clock=arm.clock,
        sm_clock_hz=_arm_clock(launches),
        baseline_sm_clock_hz=_arm_clock(case.arms[base.name]),
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


def work(cost: Cost) -> float:
    """The same without its unit."""
    return work_of(cost)[0]


def roof_fraction(regime: str, launches: Sequence[Arm], roofs: Sequence[Roof]) -> float | None:
    """The share of its roof that an arm reaches; None where that was not measured."""
    cost = launches[0].cost
    rate = stats.rate_over(launches, stats.work_for_roof)
    for roof in roofs:
        if cost and rate and roof.name == cost.roof and roof.regime == regime:
            return roof.share(rate)
    return None


def _worst_check(launches: Sequence[Arm]) -> float | None:
    return max((a.check_error for a in launches if a.check_error is not None), default=None)


def _arm_clock(launches: Sequence[Arm]) -> float | None:
    return stats.median_over([hz for one in launches for hz in one.windows.sm_clock_hz])


def highest(records: Iterable[Record], key: str) -> float | None:
    """Of all samples of the first GPU during these records; None where there are none."""
    seen = (one.telemetry.ranges for one in records if one.telemetry)
    return max((ranges[key].max for ranges in seen if key in ranges), default=None)


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
    worst = max(case.records, key=lambda record: OUTCOMES.index(record.outcome))
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
