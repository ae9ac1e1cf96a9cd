"""What the records of one machine say of each claim; pure functions, no verdict is set by hand.

The evidence of a case is the gain of the claim's arm over its baseline on the model: the median
over its runs with a 95 % interval over runs (`analysis.over_runs`). Of fewer than three runs it is
theirs, and is called so. What may not lead decides nothing (`analysis.standing`), but is told: a
known error, a control as its baseline, one launch alone, and of times those of an arm that waits
for the host or sleeps.

A case is inside when its whole interval is in the claimed range, outside when none of it is, else
undecided. All inside: confirmed. Some inside: confirmed under conditions. All outside: corrected to
the measured range, or not confirmed where no case shows an effect of the claimed sign. Anything
else is not confirmed. "Up to" is confirmed by one case that reaches the figure, which says so
where the largest gain exceeds it, and corrected to the largest gain otherwise. What public
documentation refutes is so on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpulift.analysis import bounds
from gpulift.analysis.bounds import bound_of
from gpulift.analysis.choice import NOTHING_KNOWN, Choice
from gpulift.analysis.errata import known_errors
from gpulift.analysis.ledger import Claim, Experiment, Rule
from gpulift.analysis.over_runs import ModelFigure, model_figure
from gpulift.analysis.standing import ONE_LAUNCH, why_not_deciding
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Arm, Record
from gpulift.verdicts import stats

CONFIRMED = "confirmed"
UNDER_CONDITIONS = "confirmed under conditions"
CORRECTED = "corrected"
NOT_CONFIRMED = "not confirmed"
REFUTED = "refuted by documentation"
NOT_TESTABLE = "not testable here"
NOT_MEASURED = "not yet measured"
VERDICTS = (
    CONFIRMED,
    UNDER_CONDITIONS,
    CORRECTED,
    NOT_CONFIRMED,
    REFUTED,
    NOT_TESTABLE,
    NOT_MEASURED,
)

INSIDE = "inside"
OUTSIDE = "outside"
UNDECIDED = "undecided"

EXCEEDED = 1.05  # beyond "up to" by more than what counts as the same


@dataclass(frozen=True)
class CaseResult:
    """The gain in one case, its interval, and where that is against the claimed range."""

    case_id: str
    figure: ModelFigure
    low: float
    high: float
    place: str
    bound: str = ""  # of the arm and of its baseline

    @property
    def gain(self) -> Estimate:
        """Of the arm over its baseline."""
        return self.figure.value

    @property
    def records(self) -> tuple[Record, ...]:
        """Those behind the gain."""
        return self.figure.records

    @property
    def cards(self) -> tuple[str, ...]:
        """Short hashes of the cards that took part; none without a GPU."""
        return self.figure.cards


@dataclass(frozen=True)
class Barred:
    """A case that decides nothing, its gain, and why."""

    case_id: str
    gain: float
    why: str


@dataclass(frozen=True)
class Judgement:
    """The verdict on one claim. `reason` says what decided; `cases` hold the evidence."""

    claim: Claim
    verdict: str
    reason: str = ""
    cases: tuple[CaseResult, ...] = ()
    barred: tuple[Barred, ...] = ()

    @property
    def of_model(self) -> bool:
        """Whether every case rests on enough runs to speak of the model."""
        return bool(self.cases) and all(case.figure.of_model for case in self.cases)

    @property
    def range(self) -> tuple[float, float] | None:
        """From the lowest to the highest gain over all cases."""
        gains = [case.gain.value for case in self.cases]
        return (min(gains), max(gains)) if gains else None

    @property
    def records(self) -> tuple[Record, ...]:
        """All records that the verdict stands on."""
        return tuple(record for case in self.cases for record in case.records)

    @property
    def command(self) -> str:
        """What makes the records that are missing; empty where none are, or none can be made."""
        test = self.claim.test
        if self.verdict != NOT_MEASURED or test is None or test.planned:
            return ""
        return f"./gpulift run {test.technique}"


def judge(
    claims: Sequence[Claim], records: Sequence[Record], choice: Choice = NOTHING_KNOWN
) -> tuple[Judgement, ...]:
    """All claims against the records of one machine that stand for their cases today, in the order
    of the ledger."""
    by_technique: dict[str, list[Record]] = {}
    for record in records:
        if record.kind == "technique" and not record.synthetic and not record.off_sweep:
            by_technique.setdefault(record.technique, []).append(record)
    return tuple(judge_claim(claim, by_technique, choice) for claim in claims)


def judge_claim(
    claim: Claim, by_technique: Mapping[str, Sequence[Record]], choice: Choice = NOTHING_KNOWN
) -> Judgement:
    """One claim against the records of one machine, by technique."""
    test = claim.test
    if claim.refuted_by:
        return Judgement(claim, REFUTED, claim.refuted_by)
    if test is None:
        return Judgement(claim, NOT_TESTABLE, claim.not_testable)
    measured = by_technique.get(test.technique)
    if measured and test.gpu not in measured[0].context.slug:
        return Judgement(claim, NOT_TESTABLE, f"the statement is about another GPU, {test.gpu}")
    if test.planned:
        return Judgement(claim, NOT_MEASURED, f"{test.technique} is planned")
    records = [r for r in by_technique.get(test.technique, ()) if re.search(test.cases, r.case_id)]
    figures = list(_figures(records, test, choice))
    barred = tuple(Barred(id, one.value.value, why) for id, one, why in figures if why)
    cases = tuple(_results(((id, one) for id, one, why in figures if not why), test))
    if not cases:
        return Judgement(claim, *_unmeasured(records, test, barred), barred=barred)
    decide = _decide_largest if test.rule.kind == "up_to" else _decide_range
    return Judgement(claim, *decide(cases, test.rule), cases, barred)


def _results(figures: Iterable[tuple[str, ModelFigure]], test: Experiment) -> Iterator[CaseResult]:
    """The cases with an interval."""
    for case_id, figure in figures:
        low, high = figure.value.low, figure.value.high
        if low is not None and high is not None:
            found = (bound_of(figure.records, arm) for arm in (test.arm, test.baseline))
            place = _place(low, high, test.rule)
            yield CaseResult(case_id, figure, low, high, place, bounds.shown(found))


def _figures(
    records: Sequence[Record], test: Experiment, choice: Choice
) -> Iterator[tuple[str, ModelFigure, str]]:
    """The gain on the model, case by case, and why it decides nothing. Of records that an erratum
    withholds only where there are no others, and none of what is gone."""
    arms = (test.arm, test.baseline)

    def value(launches: Sequence[Record]) -> Estimate | None:
        return METRICS[test.metric](launches, test)

    todays = [one for one in records if not choice.today.gone(one, arms)]
    for id, each in _by_case(todays, test, choice):
        sound = [one for one in each if not choice.withheld([one], arms)]
        figure = model_figure(sound or each, arms, value, choice)
        if figure is not None:
            errors = () if sound else known_errors(each, choice.errata)
            why = why_not_deciding(figure.records, arms, errors, times=test.metric in OF_TIMES)
            yield id, figure, why or ("" if figure.decides else ONE_LAUNCH)


def _by_case(
    records: Sequence[Record], test: Experiment, choice: Choice
) -> list[tuple[str, list[Record]]]:
    """The records in which both arms were measured, by the id of their case today, in its order."""
    cases: dict[str, list[Record]] = {}
    for record in records:
        if _holds(record, test):
            cases.setdefault(choice.today.case_id(record), []).append(record)
    return sorted(cases.items(), key=lambda item: _natural(item[0]))


def _natural(case_id: str) -> list[int | str]:
    """Sorts `bytes:65536` after `bytes:4096`."""
    parts = re.split(r"(\d+)", case_id)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]


def _holds(record: Record, test: Experiment) -> bool:
    """Whether both arms were measured in it."""
    arms = (stats.measured_arms([record], name) for name in (test.baseline, test.arm))
    return record.outcome == "ok" and all(arms)


Metric = Callable[[Sequence[Record], Experiment], "Estimate | None"]


def _speedup(records: Sequence[Record], test: Experiment) -> Estimate | None:
    pair = stats.pair_ratio(records, test.arm, test.baseline)
    return pair.speedup if pair else None


def _rate(records: Sequence[Record], test: Experiment) -> Estimate | None:
    """Items per second of the arm over the baseline's: the speedup, where items are counted."""
    counted = all(_items(records, name) for name in (test.arm, test.baseline))
    return _speedup(records, test) if counted else None


def _batch(records: Sequence[Record], test: Experiment) -> Estimate | None:
    """Items of a step of the arm over the baseline's: counted, so that the interval is a point."""
    arm, baseline = (_items(records, name) for name in (test.arm, test.baseline))
    if not arm or not baseline:
        return None
    return Estimate(arm / baseline, arm / baseline, arm / baseline, len(records))


def _items(records: Sequence[Record], arm: str) -> float:
    cost = stats.measured_arms(records, arm)[0].cost
    return cost.items if cost else 0.0


def _memory(records: Sequence[Record], test: Experiment) -> Estimate | None:
    """Peak memory of the baseline over the arm's: of the device where both used it, else the host.

    None where an arm needed none beyond what all share.
    """
    return _ratio(records, test, _peaks)


def _fragmentation(records: Sequence[Record], test: Experiment) -> Estimate | None:
    """What the baseline's allocator holds over what is in it, over the same of the arm."""
    return _ratio(records, test, lambda *pair: _both(map(_held_over_used, pair)))


def _cold_start(records: Sequence[Record], test: Experiment) -> Estimate | None:
    """A step of the baseline over the arm's cold start, which is its first three."""

    def values(baseline: Arm, arm: Arm) -> Values | None:
        return _both((baseline.step_quartiles_s[1], arm.metrics.get("cold_start_s")))

    return _ratio(records, test, values)


def _noted(name: str) -> Metric:
    """What the baseline noted under this name over what the arm did."""

    def values(*pair: Arm) -> Values | None:
        return _both(arm.metrics.get(name) for arm in pair)

    return lambda records, test: _ratio(records, test, values)


Values = tuple[float, float]  # of the baseline and the arm


def _ratio(
    records: Sequence[Record], test: Experiment, values: Callable[[Arm, Arm], Values | None]
) -> Estimate | None:
    """The baseline's value over the arm's, over launches; None where a launch has none."""
    logs = []
    for record in records:
        baseline, arm = (
            stats.measured_arms([record], name)[0] for name in (test.baseline, test.arm)
        )
        pair = values(baseline, arm)
        if pair is None:
            return None
        logs.append(float(np.log(pair[0] / pair[1])))
    return stats.over_launches(logs, np.asarray(logs))


def _both(values: Iterable[float | None]) -> Values | None:
    """None where one of them is missing."""
    first, second = values
    return (first, second) if first and second else None


def _held_over_used(arm: Arm) -> float | None:
    held, used = (arm.metrics.get(f"peak_{kind}_bytes") for kind in ("reserved", "allocated"))
    return held / used if held and used else None


def _peaks(baseline: Arm, arm: Arm) -> tuple[int, int] | None:
    on_device = (baseline.peak_device_bytes, arm.peak_device_bytes)
    on_host = (baseline.peak_host_bytes, arm.peak_host_bytes)
    for first, second in (on_device, on_host):
        if first and second:
            return first, second
        if first or second:  # one used it and the other did not: no ratio says how much that is
            return None
    return None


OF_TIMES = (
    "speedup",
    "rate",
    "cold_start",
    "cpu_time",
    "restore_time",
    "training_slowdown",
)  # which the host's pace, or a sleep, is in
METRICS: Mapping[str, Metric] = {
    "speedup": _speedup,
    "cpu_time": lambda records, test: stats.cpu_ratio(records, test.baseline, test.arm),
    "memory": _memory,
    "rate": _rate,
    "batch": _batch,
    "fragmentation": _fragmentation,
    "cold_start": _cold_start,
    "held_out_loss": _noted("held_out_loss"),
    "checkpoint_bytes": _noted("checkpoint_bytes"),
    "restore_time": _noted("restore_s"),
    "training_slowdown": _noted("training_slowdown_ratio"),
}


def _place(low: float, high: float, rule: Rule) -> str:
    if rule.kind == "faster_or_slower_by":
        return _place_apart(low, high, rule.low or 1.0)
    least = 0.0 if rule.low is None else rule.low
    most = float("inf") if rule.high is None else rule.high
    if least <= low and high <= most:
        return INSIDE
    return OUTSIDE if high < least or low > most else UNDECIDED


def _place_apart(low: float, high: float, least: float) -> str:
    if low >= least or high <= 1 / least:
        return INSIDE
    return OUTSIDE if 1 / least < low and high < least else UNDECIDED


def _right_sign(case: CaseResult, rule: Rule) -> bool:
    """Whether the effect is shown to go the way that the claim says; any way if it names none."""
    if rule.kind == "faster_or_slower_by":
        return True
    if rule.low is not None and rule.low > 1:
        return case.low > 1
    if rule.high is not None and rule.high < 1:
        return case.high < 1
    return True


def _decide_range(cases: Sequence[CaseResult], rule: Rule) -> tuple[str, str]:
    inside = [case for case in cases if case.place == INSIDE]
    outside = [case for case in cases if case.place == OUTSIDE]
    if len(inside) == len(cases):
        return CONFIRMED, f"{rule.text} in every case"
    if inside:
        return UNDER_CONDITIONS, f"{rule.text} in {len(inside)} of {len(cases)} cases"
    if len(outside) < len(cases):
        undecided = f"undecided in {len(cases) - len(outside)} of {len(cases)} cases"
        return NOT_CONFIRMED, undecided + (", not so in the others" if outside else "")
    if not any(_right_sign(case, rule) for case in cases):
        return NOT_CONFIRMED, "no case shows a gain" if rule.low else "no case shows a loss"
    return CORRECTED, f"not {rule.text} in any case"


def _decide_largest(cases: Sequence[CaseResult], rule: Rule) -> tuple[str, str]:
    largest = max(cases, key=lambda case: case.gain.value)
    if any(case.place == INSIDE for case in cases):
        beyond = largest.low > (rule.low or 0.0) * EXCEEDED
        more = f", and exceeded: {largest.gain.value:.3g}×" if beyond else ""
        return CONFIRMED, f"{rule.text}: reached{more}"
    if any(case.place == UNDECIDED for case in cases):
        return NOT_CONFIRMED, "the largest gain may or may not reach it: more launches are needed"
    if not _right_sign(largest, rule):
        return NOT_CONFIRMED, "no case shows a gain"
    return CORRECTED, f"up to {largest.gain.value:.3g}×, not {rule.text}"


def _unmeasured(
    records: Sequence[Record], test: Experiment, barred: Sequence[Barred]
) -> tuple[str, str]:
    """Skipped here is not the same as not measured yet."""
    reasons = [_skipped(record, test) for record in records]
    if reasons and all(reasons):
        return NOT_TESTABLE, reasons[0]
    measured = [record for record in records if _holds(record, test)]
    if not measured:
        return NOT_MEASURED, f"no measured records of {test.technique}"
    if barred:
        return NOT_MEASURED, _decide_nothing(barred)
    return NOT_MEASURED, f"the records give no {test.metric} with an interval"


def _skipped(record: Record, test: Experiment) -> str:
    """Why the record or one of its two arms was skipped; empty where it was not."""
    if record.outcome == "skipped":
        return record.reason or "skipped"
    arms = (record.arm(name) for name in (test.baseline, test.arm))
    reasons = (arm.reason or "skipped" for arm in arms if arm and arm.outcome == "skipped")
    return next(reasons, "")


SHOWN_CASES = 4


def rank(one: Judgement) -> tuple[bool, bool, int]:
    """What rests on enough runs to speak of the model first, then what on fewer, by verdict."""
    return not one.cases, not one.of_model, VERDICTS.index(one.verdict)


def measured(one: Judgement) -> str:
    """The gain, or its range over the cases, what decided, and what decides nothing."""
    if one.claim.test is None or one.range is None:
        return one.reason
    if len(one.cases) == 1:
        gain = one.cases[0].figure.shown
    else:
        low, high = one.range
        gain = f"{low:.3g}× to {high:.3g}× over {len(one.cases)} cases"
    parts = [f"{one.claim.test.metric} {gain}", one.reason]
    if one.barred:
        parts.append(_decide_nothing(one.barred))
    return "; ".join(parts)


def _decide_nothing(barred: Sequence[Barred]) -> str:
    """`one launch, which decides nothing: n 2 0.5×`, for each reason."""
    found: dict[str, list[str]] = {}
    for one in barred:
        label = f"{text.case_label(one.case_id)} {one.gain:.3g}×"
        found.setdefault(one.why, []).append(label)
    said = (
        f"{why}, which decides nothing: {', '.join(_first(cases))}" for why, cases in found.items()
    )
    return "; ".join(said)


def conditions(one: Judgement) -> str:
    """Cases where it holds only in some, cards, launches, and the records that were used; without
    any, the command that makes them."""
    if not one.records:
        return one.command
    records = one.records
    parts = []
    if one.verdict == UNDER_CONDITIONS:
        inside = [text.case_label(case.case_id) for case in one.cases if case.place == INSIDE]
        parts.append("holds for " + "; ".join(_first(inside)))
    if all(case.cards for case in one.cases):
        parts.append(_span([len(case.cards) for case in one.cases], "card"))
    parts.append(_span([len(case.figure.runs) for case in one.cases], "run"))
    parts.append(_span([case.gain.launches for case in one.cases], "launch", "es") + " a case")
    parts += dict.fromkeys(doubt for case in one.cases for doubt in case.figure.doubts)
    parts.append(f"bound by {', '.join(dict.fromkeys(case.bound for case in one.cases))}")
    parts.append(f"{len(records)} records, the first {records[0].citation}")
    parts += sorted({record.context.build.doubt for record in records} - {""})
    return ", ".join(parts)


def _first(cases: Sequence[str]) -> list[str]:
    rest = len(cases) - SHOWN_CASES
    return [*cases[:SHOWN_CASES], *([f"{rest} more"] if rest > 0 else [])]


def _span(counts: Sequence[int], what: str, plural: str = "s") -> str:
    """`3 launches`, `one run` or `1 to 4 cards`."""
    low, high = min(counts), max(counts)
    number = f"{low} to {high}" if low != high else "one" if low == 1 else f"{low}"
    return f"{number} {what}{'' if high == 1 else plural}"
