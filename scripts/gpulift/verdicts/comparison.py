"""Two sets of records against each other: one row per technique, case and arm, one family.

Sections of METHOD.md: Comparability, Launch value, Independent launches, Family, Equivalence.

The level that counts is the highest of which there are two or more on both sides: launch, run, or
card where the question is about cards or models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median

import numpy as np

from gpulift.engine import machine
from gpulift.engine.runs import RUNNING
from gpulift.ground import steps
from gpulift.ground.errors import (
    FAILED,
    INCONCLUSIVE,
    INSTRUMENT_BROKEN,
    NOT_COMPARABLE,
    NOTHING_RAN,
    OK,
    USAGE,
    GpuliftError,
)
from gpulift.ground.steps import step
from gpulift.records.model import IMPORT, OUTCOMES, Arm, Cost, Record
from gpulift.records.read import Run
from gpulift.records.together import read_state
from gpulift.verdicts import decision, stats, thresholds
from gpulift.verdicts.comparability import Common, cards, require_comparable, require_factor
from gpulift.verdicts.decision import Difference, Margins, Verdict
from gpulift.verdicts.hardware import emptied_by_hardware, slowed_by_hardware
from gpulift.verdicts.matching import names_of, selected
from gpulift.verdicts.work import log_over_baseline, may_differ, of_own_size, other_work

MAX_INCONCLUSIVE = 0.1  # of the rows that were compared

UNITS = {"launch": "launches", "run": "runs", "card": "cards"}
OWN_SIZE = "each run found the size of its work itself"
OWN_SHAPE = (
    "each run chose the shape of its steps itself, and its launches share it: two runs or more of"
    " each side would show what that makes"
)
SHAPES_APART = 0.1  # searches on one H200 chose shapes whose rates were up to 3.9 % apart
OVER_BASELINE = f"time over the baseline's: {OWN_SIZE}"
NAMED = 5  # cases that an error names before it counts the rest

Case = tuple[str, str]


@dataclass(frozen=True)
class Launch:
    """One arm of one process: the lowest level that counts.

    `over_baseline` is the log of its time over the baseline's, where that is its value.
    """

    run: str
    record: Record
    arm: Arm
    over_baseline: float | None = None

    @property
    def step_s(self) -> float:
        """Median time of one step."""
        return median(seconds / self.arm.steps_per_window for seconds in self.arm.window_s)

    @cached_property
    def log_value(self) -> float:
        """The launch value. A ceiling may choose other shapes in other runs: its value is the time
        per unit of work."""
        if self.over_baseline is not None:
            return self.over_baseline
        return math.log(self.step_s) - math.log(self.work)

    @property
    def unit_of_work(self) -> str:
        """What the launch value is the time of: "step", or of a ceiling "operation" or "byte"."""
        cost = self.arm.cost or Cost()
        if not self.record.ceiling or stats.work_for_roof(cost) <= 0:
            return "step"
        return "operation" if stats.counts_operations(cost.roof) else "byte"

    @property
    def work(self) -> float:
        """How many units of work a step has."""
        one = self.unit_of_work == "step"
        return 1.0 if one else stats.work_for_roof(self.arm.cost or Cost())

    @property
    def card(self) -> str:
        """Short hash of the card, or of nothing where there is no GPU."""
        gpu = self.record.context.gpu
        return gpu.card if gpu else ""


@dataclass(frozen=True)
class ArmPair:
    """One arm of one case, head against base."""

    technique: str
    case_id: str
    arm: str
    verdict: Verdict
    base: tuple[Launch, ...] = ()
    head: tuple[Launch, ...] = ()
    uncommon: bool = False  # not the same work on both sides, or on one side only
    own_size: bool = False  # not the same work, since each run found the size of it itself
    margins: Margins = decision.TWO_RUNS

    @property
    def name(self) -> str:
        """What --explain looks for."""
        return "/".join(part for part in (self.technique, self.case_id, self.arm) if part)

    @property
    def measure(self) -> str:
        """What is compared, where it is not the time."""
        return OVER_BASELINE if self.own_size and self.base else ""

    @property
    def quantity(self) -> str:
        """What is compared."""
        unit = self.base[0].unit_of_work if self.base else "step"
        return self.measure or ("time" if unit == "step" else f"time of one {unit}")

    @property
    def change(self) -> float | None:
        """Head time / base time - 1; also where no interval is known."""
        if self.verdict.difference is not None:
            return self.verdict.difference.change
        if not self.base or not self.head:
            return None
        return math.expm1(_mean_log(self.head) - _mean_log(self.base))


@dataclass(frozen=True)
class Comparison:
    """All rows, worst first, and what they stand on."""

    base: tuple[str, ...]
    head: tuple[str, ...]
    across: str | None
    question: str  # what the declared difference asks; empty where none is declared
    unit: str
    common: Common
    rows: tuple[ArmPair, ...]
    notes: tuple[str, ...]
    work: Mapping[str, tuple[str, ...]]  # of techniques, what may have changed in it
    filter: str | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)  # least changes by pattern
    unfinished: tuple[str, ...] = ()  # which runs were read before their end

    @property
    def asked(self) -> list[tuple[str, str]]:
        """What the user limited it to, and calls a change."""
        told = [("filter", self.filter)] if self.filter is not None else []
        least = [f"{decision.percent(one)} in {name}" for name, one in self.thresholds.items()]
        return told + ([("least change", ", ".join(least))] if least else [])

    @property
    def work_lines(self) -> list[str]:
        """What may make the work of a technique another one; a declared commit brings its own."""
        brings = self.across == "commit"
        said = "comes with the commit" if brings else "measured work may differ"
        return [f"{said}: {name} ({'; '.join(differs)})" for name, differs in self.work.items()]

    @property
    def counts(self) -> dict[str, int]:
        """Rows by verdict, worst first."""
        found = [row.verdict.verdict for row in self.rows]
        return {verdict: found.count(verdict) for verdict in decision.WORST_FIRST}

    @cached_property
    def family(self) -> int:
        """Comparisons that share the error budget."""
        return sum(row.verdict.difference is not None for row in self.rows)

    @property
    def exit_code(self) -> int:
        """1 regressed or error; 77 nothing was compared; 5 more than 10 % of it inconclusive."""
        counts = self.counts
        if counts[decision.REGRESSED] or counts[decision.ERROR]:
            return FAILED
        compared = len(self.rows) - counts[decision.SKIPPED]
        if compared == 0:
            return NOTHING_RAN
        silent = counts[decision.INCONCLUSIVE] > MAX_INCONCLUSIVE * compared
        return INCONCLUSIVE if silent else OK


def compare(
    base: Sequence[Run],
    head: Sequence[Run],
    across: str | None = None,
    common: bool = False,
    filter: str | None = None,
    least_changes: Mapping[str, float] | None = None,
) -> Comparison:
    """Head against base. With `common`, cases that are not on both sides alike are only listed.

    `filter` selects rows as that of `run` does; the others are no part of it. `least_changes` has
    what a user calls a change, by pattern. Raises GpuliftError: usage, not comparable, or
    instrument broken.
    """
    asked = thresholds.of_rows(least_changes or {}, _names([*base, *head]))
    base, head = selected(base, filter), selected(head, filter)
    factor = require_factor(across)
    _require_once([*base, *head])
    notes = [_warned(run, text) for run in (*base, *head) for text in run.warnings]
    kind = _kind([*base, *head])
    base, base_notes = _of_kind(kind, "base", base)
    head, head_notes = _of_kind(kind, "head", head)
    facts = require_comparable(base, head, factor)
    notes += [f"{fact} is known on one side only: not compared" for fact in facts.one_sided]
    sides = (_cases(base), _cases(head))
    unit = _unit(base, head, across)
    rows = [
        replace(row, margins=decision.TWO_RUNS.asked(asked.get(row.name)))
        for row in _rows(sides, common, unit, machine.matcher(filter))
    ]
    return Comparison(
        base=tuple(run.name for run in base),
        head=tuple(run.name for run in head),
        across=across,
        question=_question(across, unit, _count_cards(base), _count_cards(head)),
        unit=unit,
        common=facts,
        rows=tuple(sorted(_decided(rows, unit, across), key=_worst_first)),
        notes=(*notes, *base_notes, *head_notes, *_doubts(base, head)),
        work=_changed_work(sides),
        filter=filter,
        thresholds=least_changes or {},
        unfinished=tuple(
            f"{side} is not finished: {run.name} is still running, or was broken off"
            for side, runs in (("base", base), ("head", head))
            for run in runs
            if read_state(run.folder).get("state") == RUNNING
        ),
    )


def values(launches: Sequence[Launch], unit: str) -> list[float]:
    """One log step time per unit: launch, run (mean of launches) or card (mean of runs)."""
    if unit == "launch":
        return [one.log_value for one in launches]
    logs: dict[str, dict[str, list[float]]] = {}
    for one in launches:
        card = one.card if unit == "card" else ""
        logs.setdefault(card, {}).setdefault(one.run, []).append(one.log_value)
    runs = {card: [_mean(held) for held in by_run.values()] for card, by_run in logs.items()}
    return [_mean(means) for means in runs.values()] if unit == "card" else runs.get("", [])


# --- What is compared ---

Side = dict[Case, list[tuple[str, Record]]]


def _require_once(runs: Sequence[Run]) -> None:
    """A launch that is given twice would pass for two. An id is only made of those that look alike,
    since that takes longer than to read a record."""
    seen: dict[tuple[object, ...], list[Record]] = {}
    for record in (record for run in runs for record in run.records):
        times = tuple(tuple(arm.window_s[:1]) for arm in record.arms)
        alike = seen.setdefault((record.subject, record.launch, record.started_at, times), [])
        first = next((one for one in alike if one.id == record.id), None)
        if first is not None:
            raise GpuliftError(
                f"{record.file}:{record.line} is the same record as {first.file}:{first.line}: a"
                " launch counts once, so name each run once",
                USAGE,
            )
        alike.append(record)


def _names(runs: Sequence[Run]) -> set[tuple[str, ...]]:
    """Of all rows that the runs could have, as filters see them."""
    return {
        names_of(record.technique, record.case_id, arm)
        for run in runs
        for record in run.records
        for arm in [one.name for one in record.arms] or [""]
    }


def _count_cards(runs: Sequence[Run]) -> int:
    """As values are counted: what is of no known card is of one."""
    gpus = [run.records[0].context.gpu for run in runs]
    return len({gpu.card if gpu else "" for gpu in gpus})


def _kind(runs: Sequence[Run]) -> str:
    """What is compared: techniques, or where all was imported from another tool, that."""
    kinds = {record.kind for run in runs for record in run.records}
    return IMPORT if kinds == {IMPORT} else "technique"


def _of_kind(kind: str, side: str, runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The runs without other records, as duets, which `compare RUN` shows, and a note of those."""
    kept = []
    left: list[str] = []
    for run in runs:
        records = tuple(record for record in run.records if record.kind == kind)
        left += [record.kind for record in run.records if record.kind != kind]
        if records:
            kept.append(replace(run, records=records))
    if not kept and IMPORT in left:
        raise GpuliftError(
            f"the {side} records were imported from another tool: they can be compared with such"
            " records only",
            NOT_COMPARABLE,
        )
    if not kept:
        raise GpuliftError(f"the {side} records are all duets: name one RUN alone", USAGE)
    return kept, [
        f"{side}: {left.count(one)} {one} records are not part of this" for one in sorted({*left})
    ]


def _cases(runs: Sequence[Run]) -> Side:
    found: Side = {}
    for run in runs:
        for record in sorted(run.records, key=lambda one: one.launch):
            case = (record.technique, record.case_id)
            found.setdefault(case, []).append((str(run.folder.resolve()), record))
    return found


def _changed_work(sides: tuple[Side, Side]) -> dict[str, tuple[str, ...]]:
    """Of the cases that both sides have."""
    records: dict[str, list[Record]] = {}
    for case in sorted(sides[0].keys() & sides[1].keys()):
        both = (*sides[0][case], *sides[1][case])
        records.setdefault(case[0], []).extend(record for _, record in both)
    return {technique: found for technique, of in records.items() if (found := may_differ(of))}


def _rows(
    sides: tuple[Side, Side], common: bool, unit: str, matches: Callable[..., bool]
) -> list[ArmPair]:
    """The rows before anything is decided; what has a verdict already will not be measured."""
    _require_clocks(sides)
    cases = sorted({*sides[0], *sides[1]})
    every = [row for case in cases for row in _case_rows(case, sides, unit)]
    rows = [row for row in every if matches(*names_of(row.technique, row.case_id, row.arm))]
    uncommon = [row for row in rows if row.uncommon]
    apart = [row for row in rows if row.uncommon or (row.own_size and row.verdict.verdict)]
    if len(apart) == len(rows):
        shared = any(row.arm for row in apart)
        why = _named(apart) if shared else "the two sets have no case in common"
        raise GpuliftError(f"not comparable: {why}; nothing is left to compare", NOT_COMPARABLE)
    if uncommon and not common:
        raise GpuliftError(
            f"not comparable: {_named(uncommon)}; --common compares the rest", NOT_COMPARABLE
        )
    return rows


def _named(rows: Sequence[ArmPair]) -> str:
    """What is said of the rows, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row.verdict.reason, []).append(row.name)
    return _some([f"{_some(names, 1)}: {reason}" for reason, names in by_reason.items()])


def _require_clocks(sides: tuple[Side, Side]) -> None:
    broken = []
    for name, side in zip(("base", "head"), sides, strict=True):
        for (technique, case_id), found in side.items():
            tried = [record for _, record in found if record.outcome != "skipped"]
            empty = sum(emptied_by_hardware(record) for record in tried)
            if tried and all(slowed_by_hardware(record) for record in tried):
                broken.append(f"every launch of {technique}/{case_id} in {name}")
            elif empty:
                many = f"{empty} of {len(tried)} launches"
                broken.append(f"every block of {many} of {technique}/{case_id} in {name}")
    if broken:
        raise GpuliftError(
            f"the hardware slowed itself down in {_some(broken)}: nothing can be said; look after"
            " cooling and power, and measure again",
            INSTRUMENT_BROKEN,
        )


def _case_rows(case: Case, sides: tuple[Side, Side], unit: str) -> list[ArmPair]:
    base, head = (side.get(case, []) for side in sides)
    if not base or not head:
        return [_uncommon(case, "", f"only in {'base' if base else 'head'}")]
    arms = dict.fromkeys(arm.name for _, record in (*base, *head) for arm in record.arms)
    return [_row(case, name, base, head, unit) for name in arms or [""]]


def _row(
    case: Case,
    arm: str,
    base: Sequence[tuple[str, Record]],
    head: Sequence[tuple[str, Record]],
    unit: str,
) -> ArmPair:
    for name, side, other in (("base", base, head), ("head", head, base)):
        if _has(side, arm) and not _has(other, arm) and _has_arms(other):
            return _uncommon(case, arm, f"only in {name}")
    records = [record for _, record in (*base, *head)]
    difference = other_work(arm, records)
    own_size = bool(difference) and of_own_size(arm, records)
    if difference and not own_size:
        return _uncommon(case, arm, f"another work: {difference}")
    not_measured = _not_measured(arm, base, head)
    if not_measured is not None:
        return ArmPair(*case, arm, not_measured)
    if own_size:
        return _row_of_own_size(case, arm, base, head, unit, difference)
    return ArmPair(*case, arm, Verdict(""), _launches(arm, base), _launches(arm, head))


def _row_of_own_size(
    case: Case,
    arm: str,
    base: Sequence[tuple[str, Record]],
    head: Sequence[tuple[str, Record]],
    unit: str,
    difference: str,
) -> ArmPair:
    """By the time over the baseline's where runs or cards are what counts, else not compared."""
    records = [record for _, record in (*base, *head)]
    names = {one.name for record in records for one in record.arms if one.role == "baseline"}
    if len(names) != 1:
        return _uncommon(case, arm, f"not one baseline: {', '.join(sorted(names)) or 'none'}")
    (baseline,) = names
    other = other_work(baseline, records)
    if other and not of_own_size(baseline, records):
        return _uncommon(case, arm, f"another work of its baseline: {other}")
    over = {record.id: log_over_baseline(record, arm, baseline) for record in records}
    if unit == "launch":
        why = "two runs or more of each side would show what its arms are worth"
    elif None in over.values():
        why = "the other arms are held against it" if arm == baseline else "no ratio is known"
    else:
        before, after = (
            tuple(replace(one, over_baseline=over[one.record.id]) for one in _launches(arm, side))
            for side in (base, head)
        )
        return ArmPair(*case, arm, Verdict(""), before, after, own_size=True)
    reason = f"{OWN_SIZE} ({difference}): {why}"
    return ArmPair(*case, arm, Verdict(decision.SKIPPED, reason=reason), own_size=True)


def _uncommon(case: Case, arm: str, reason: str) -> ArmPair:
    return ArmPair(*case, arm, Verdict(decision.SKIPPED, reason=reason), uncommon=True)


def _has(side: Sequence[tuple[str, Record]], arm: str) -> bool:
    return any(record.arm(arm) is not None for _, record in side)


def _has_arms(side: Sequence[tuple[str, Record]]) -> bool:
    return any(record.arms for _, record in side)


def _not_measured(
    arm: str, base: Sequence[tuple[str, Record]], head: Sequence[tuple[str, Record]]
) -> Verdict | None:
    """Error, or skipped, where a launch of either side has no value."""
    base_worst, base_reason = _worst(arm, base)
    head_worst, head_reason = _worst(arm, head)
    if head_worst in ("failed", "error"):
        return Verdict(decision.ERROR, reason=f"head {head_worst}: {head_reason}")
    if base_worst in ("failed", "error"):
        return Verdict(decision.SKIPPED, reason=f"no base: {base_worst}: {base_reason}")
    if "skipped" not in (base_worst, head_worst):
        return None
    if base_worst == head_worst and base_reason == head_reason:
        return Verdict(decision.SKIPPED, reason=f"base and head: {base_reason}")
    reasons = [("base", base_worst, base_reason), ("head", head_worst, head_reason)]
    told = "; ".join(f"{side}: {reason}" for side, worst, reason in reasons if worst == "skipped")
    return Verdict(decision.SKIPPED, reason=told)


def _worst(name: str, side: Sequence[tuple[str, Record]]) -> tuple[str, str]:
    """The worst outcome of an arm over the launches of a side, and its reason."""
    found = [_outcome(name, record) for _, record in side]
    return max(found, key=lambda one: OUTCOMES.index(one[0]))


def _outcome(name: str, record: Record) -> tuple[str, str]:
    if record.outcome != "ok":
        return record.outcome, record.reason
    arm = record.arm(name)
    if arm is None:
        return "skipped", f"launch {record.launch} has no such arm"
    if arm.outcome == "ok" and not arm.window_s:
        return "skipped", f"launch {record.launch} has no windows"
    return arm.outcome, arm.reason


def _launches(name: str, side: Sequence[tuple[str, Record]]) -> tuple[Launch, ...]:
    found = [(run, record, record.arm(name)) for run, record in side]
    return tuple(Launch(run, record, arm) for run, record, arm in found if arm is not None)


# --- What is decided ---


def _unit(base: Sequence[Run], head: Sequence[Run], across: str | None) -> str:
    """The highest level of which there are two on both sides; for models always the card, and for
    cards where a side has several."""
    counted = [len(cards(side)) for side in (base, head)]
    if across == "gpu-model" or (across == "card" and max(counted) > 1):
        return "card"
    folders = [{run.folder.resolve() for run in side} for side in (base, head)]
    return "run" if min(map(len, folders)) > 1 else "launch"


def _question(across: str | None, unit: str, base: int, head: int) -> str:
    if across is None:
        return ""
    if across == "gpu-model":
        return f"do the models differ, as far as {base} and {head} of their cards tell?"
    if across != "card":
        return f"what does another {across} change, all else being equal?"
    if unit != "card":
        return "does this one card differ from that one? Of other cards it tells nothing"
    return (
        f"do the cards of which head is a sample ({head}) differ from those of base ({base})? What"
        " else sets the two groups apart, as hosts and days, is part of the answer"
    )


def _decided(rows: Sequence[ArmPair], unit: str, across: str | None) -> list[ArmPair]:
    differences: dict[int, Difference] = {}
    for index, row in enumerate(rows):
        if row.verdict.verdict == "":
            found = decision.independent(values(row.base, unit), values(row.head, unit))
            if found is not None:
                differences[index] = found
    verdicts = decision.decide_family(differences, {i: rows[i].margins for i in differences})
    decided = [
        row
        if row.verdict.verdict
        else replace(row, verdict=verdicts.get(i) or _too_few(row, unit, across))
        for i, row in enumerate(rows)
    ]
    if unit != "launch":
        return decided
    alpha = decision.FAMILY_ALPHA / max(1, len(differences))
    return [_doubt_shape(row, alpha) for row in decided]


def _doubt_shape(row: ArmPair, alpha: float) -> ArmPair:
    """A small change between ceilings of two shapes may be one of shapes, of which each side has
    one. `alpha` is that of the row's test."""
    verdict = row.verdict
    changed = verdict.verdict in (decision.REGRESSED, decision.IMPROVED)
    one_shape = len({launch.work for launch in (*row.base, *row.head)}) < 2
    look = verdict.difference
    if one_shape or not changed or look is None or abs(look.change) >= SHAPES_APART:
        return row
    seen = max(SHAPES_APART, look.smallest_effect(alpha, row.margins.least))
    path = (*verdict.path[:-1], step(steps.VERDICT, f"{decision.INCONCLUSIVE}: {OWN_SHAPE}"))
    doubted = replace(verdict, verdict=decision.INCONCLUSIVE, smallest_effect=seen)
    return replace(row, verdict=replace(doubted, reason=OWN_SHAPE, path=path))


def _too_few(row: ArmPair, unit: str, across: str | None) -> Verdict:
    counts = [len(values(side, unit)) for side in (row.base, row.head)]
    why = {
        "launch": "one process says nothing about the next one",
        "run": "one run says nothing about the next one",
        "card": "two single cards never stand for two models"
        if across == "gpu-model"
        else "one card is no sample of cards",
    }[unit]
    reason = f"{UNITS[unit]}: {counts[0]} in base, {counts[1]} in head: {why}"
    path = (step(steps.INDEPENDENT, reason), step(steps.VERDICT, decision.INCONCLUSIVE))
    return Verdict(decision.INCONCLUSIVE, reason=reason, path=path)


def _worst_first(row: ArmPair) -> tuple[int, float, str]:
    change = row.change
    return (decision.WORST_FIRST.index(row.verdict.verdict), -(change or 0.0), row.name)


def _doubts(base: Sequence[Run], head: Sequence[Run]) -> list[str]:
    doubts = {
        f"{name} was {record.context.build.doubt}: its commit does not say what was measured": None
        for name, runs in (("base", base), ("head", head))
        for run in runs
        for record in run.records
        if record.kind != IMPORT and record.context.build.doubt
    }
    return list(doubts)


def _warned(run: Run, text: str) -> str:
    return text if str(run.folder) in text else f"{run.folder}: {text}"


def _some(names: Sequence[str], most: int = NAMED) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _mean_log(launches: Sequence[Launch]) -> float:
    return _mean(one.log_value for one in launches)


def _mean(numbers: Iterable[float]) -> float:
    return float(np.mean(list(numbers)))
