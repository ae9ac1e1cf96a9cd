"""What the records of one machine say of each claim; pure functions, no verdict is set by hand.

The evidence of a case is the gain of the claim's arm over its baseline on the model: the median
over its runs with a 95 % interval over runs (`analysis.over_runs`). Of fewer than three runs it is
theirs, and is called so. What may not lead decides nothing (`analysis.standing`), but is told: a
known error, a control as its baseline, one launch alone, and of times those of an arm that waits
for the host or sleeps.

`analysis.claim_rules` has what cases decide, `analysis.claim_metrics` what of them. What public
documentation confirms or refutes is so on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpulift.analysis import bounds
from gpulift.analysis.bounds import bound_of
from gpulift.analysis.choice import ENOUGH_LAUNCHES, NOTHING_KNOWN, Choice
from gpulift.analysis.claim_metrics import METRICS, OF_MEMORY, OF_TIMES
from gpulift.analysis.claim_rules import (
    CONFIRMED,
    CORRECTED,
    INSIDE,
    NOT_CONFIRMED,
    UNDER_CONDITIONS,
    CaseResult,
    decide,
    place,
)
from gpulift.analysis.doubts import Doubts
from gpulift.analysis.errata import Erratum, known_errors
from gpulift.analysis.grade import Grade, grade_of_arms
from gpulift.analysis.ledger import Claim, Experiment
from gpulift.analysis.over_runs import ModelFigure, model_figure
from gpulift.analysis.standing import KNOWN_ERROR, ONE_LAUNCH, why_not_deciding
from gpulift.engine.again import pattern_of
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Record
from gpulift.records.read import natural
from gpulift.verdicts import stats

BY_DOCUMENTATION = "confirmed by documentation"
REFUTED = "refuted by documentation"
NOT_TESTABLE = "not testable here"
NOT_DECIDED = "not decided"
NOT_MEASURED = "not yet measured"
VERDICTS = (
    CONFIRMED,
    UNDER_CONDITIONS,
    CORRECTED,
    NOT_CONFIRMED,
    NOT_DECIDED,
    BY_DOCUMENTATION,
    REFUTED,
    NOT_TESTABLE,
    NOT_MEASURED,
)


@dataclass(frozen=True)
class Barred:
    """A case that decides nothing, and why. Of one launch the value itself is placed: what its
    windows vary by is no interval."""

    case: CaseResult
    why: str

    @property
    def withheld(self) -> bool:
        """Whether the gain is wrong, and is not shown."""
        return self.why == KNOWN_ERROR


@dataclass(frozen=True)
class Judgement:
    """The verdict on one claim. `reason` says what decided; `cases` hold the evidence, and `barred`
    what decides nothing. It is not decided where there are figures, of which none does."""

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
    def evidence(self) -> tuple[CaseResult, ...]:
        """The cases that decided; where none did, those that are shown all the same."""
        return self.cases or tuple(one.case for one in self.barred if not one.withheld)

    @property
    def grade(self) -> Grade | None:
        """Of the case that has the least evidence; None where there is none."""
        return min((one.grade for one in self.evidence), key=lambda one: one.level, default=None)

    @property
    def records(self) -> tuple[Record, ...]:
        """All that the evidence stands on."""
        return tuple(record for case in self.evidence for record in case.records)

    @property
    def command(self) -> str:
        """What makes the records that are missing, of one case where launches are all that lacks;
        empty where none are, or none can be made."""
        test = self.claim.test
        if self.verdict not in (NOT_DECIDED, NOT_MEASURED) or test is None:
            return ""
        once = [one.case.case_id for one in self.barred if one.why == ONE_LAUNCH]
        if not once:
            return f"./gpulift run {test.technique}"
        rows = pattern_of(f"{test.technique}/{once[0]}", (test.baseline, test.arm))
        return f"./gpulift run '^{rows}$' --launches {ENOUGH_LAUNCHES}"


def judge(
    claims: Sequence[Claim],
    records: Sequence[Record],
    choice: Choice = NOTHING_KNOWN,
    neighbours: Mapping[str, int] | None = None,
) -> tuple[Judgement, ...]:
    """All claims against the records of one machine that stand for their cases today, in the order
    of the ledger; `neighbours` as `Doubts` has them."""
    doubts = Doubts(today=choice.today, neighbours=neighbours or {})
    by_technique: dict[str, list[Record]] = {}
    for record in records:
        if record.kind == "technique" and not record.synthetic and not record.off_sweep:
            by_technique.setdefault(record.technique, []).append(record)
    return tuple(_judge_one(claim, by_technique, choice, doubts) for claim in claims)


def _judge_one(
    claim: Claim, by_technique: Mapping[str, Sequence[Record]], choice: Choice, doubts: Doubts
) -> Judgement:
    test = claim.test
    if claim.confirmed_by or claim.refuted_by:
        verdict = BY_DOCUMENTATION if claim.confirmed_by else REFUTED
        return Judgement(claim, verdict, claim.confirmed_by or claim.refuted_by)
    if test is None:
        return Judgement(claim, NOT_TESTABLE, claim.not_testable)
    measured = by_technique.get(test.technique)
    if measured and test.gpu not in measured[0].context.slug:
        return Judgement(claim, NOT_TESTABLE, f"the statement is about another GPU, {test.gpu}")
    records = [one for one in measured or () if re.search(test.cases, choice.today.case_id(one))]
    found = [
        Barred(_placed(id, figure, test, why, doubts), why)
        for id, figure, why in _figures(records, test, _heeded(choice, test))
    ]
    cases = tuple(one.case for one in found if not one.why)
    barred = tuple(one for one in found if one.why)
    if not cases:
        return Judgement(claim, *_undecided(records, test, barred, choice), barred=barred)
    return Judgement(claim, *decide(cases, test.rule), cases, barred)


def _placed(
    case_id: str, figure: ModelFigure, test: Experiment, why: str, doubts: Doubts
) -> CaseResult:
    arms, (low, high) = (test.arm, test.baseline), (figure.value.low, figure.value.high)
    if why == ONE_LAUNCH or low is None or high is None:
        low = high = figure.value.value
    bound = bounds.shown(bound_of(figure.records, arm) for arm in arms)
    grade = replace(grade_of_arms(figure.records, arms, doubts), bound=bound)
    return CaseResult(case_id, figure, low, high, place(low, high, test.rule), grade)


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
            why = _why_not(figure.records, test, errors)
            yield id, figure, why or ("" if figure.decides else ONE_LAUNCH)


def _why_not(records: Sequence[Record], test: Experiment, errors: Sequence[Erratum]) -> str:
    """What speaks against deciding by these, but for what the claim itself asks about: a baseline
    that nobody runs, or one that waits for the host by what it is."""
    arms, times = [test.arm, test.baseline], test.metric in OF_TIMES
    if test.host and not any(one.withholds(arms) for one in errors):
        arms = [test.arm]
    return why_not_deciding(records, arms, errors, times=times, controls=test.control)


def _heeded(choice: Choice, test: Experiment) -> Choice:
    """Without the errata that say nothing against the claim: those of times alone if it asks about
    memory, those of the baseline alone if it asks about one that nobody runs, for which they
    withhold it."""
    errata = choice.errata
    if test.metric in OF_MEMORY:
        errata = tuple(one for one in errata if not one.memory_holds)
    if test.control:
        errata = tuple(one for one in errata if not one.arms or one.concerns([test.arm]))
    return replace(choice, errata=errata)


def _by_case(
    records: Sequence[Record], test: Experiment, choice: Choice
) -> list[tuple[str, list[Record]]]:
    """The records in which both arms were measured, by the id of their case today, in its order."""
    cases: dict[str, list[Record]] = {}
    for record in records:
        if _holds(record, test):
            cases.setdefault(choice.today.case_id(record), []).append(record)
    return sorted(cases.items(), key=lambda item: natural(item[0]))


def _holds(record: Record, test: Experiment) -> bool:
    """Whether both arms were measured in it."""
    arms = (stats.measured_arms([record], name) for name in (test.baseline, test.arm))
    return record.outcome == "ok" and all(arms)


def _undecided(
    records: Sequence[Record], test: Experiment, barred: Sequence[Barred], choice: Choice
) -> tuple[str, str]:
    """Skipped here is not the same as not measured yet, nor is measured the same as decided."""
    todays = [one for one in records if not choice.today.gone(one, (test.arm, test.baseline))]
    if records and not todays:
        return NOT_MEASURED, f"what records have of {test.technique} is gone"
    reasons = [_skipped(record, test) for record in todays]
    if reasons and all(reasons):
        return NOT_TESTABLE, reasons[0]
    shown = [one for one in barred if not one.withheld]
    if shown:
        return NOT_DECIDED, "; ".join([*_pointed(shown, test), _decide_nothing(barred)])
    if barred:
        return NOT_MEASURED, _decide_nothing(barred)
    if any(_holds(record, test) for record in todays):
        return NOT_MEASURED, f"the records give no {test.metric}"
    return NOT_MEASURED, f"no measured records of {test.technique}"


def _pointed(barred: Sequence[Barred], test: Experiment) -> Iterator[str]:
    """What the cases would decide that lack launches alone, by the values that they have."""
    once = [one.case for one in barred if one.why == ONE_LAUNCH]
    if once:
        verdict, reason = decide(once, test.rule)
        yield f"one launch a case points to {verdict}: {reason}"


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
    """The marks of the least evidence, the gain or its range over the cases, what decided, and what
    decides nothing."""
    marks = f"{one.grade.marks} " if one.grade else ""
    if one.claim.test is None or one.range is None:
        return marks + one.reason
    if len(one.cases) == 1:
        gain = one.cases[0].figure.shown
    else:
        low, high = one.range
        gain = f"{low:.3g}× to {high:.3g}× over {len(one.cases)} cases"
    parts = [f"{marks}{one.claim.test.metric} {gain}", one.reason]
    if one.barred:
        parts.append(_decide_nothing(one.barred))
    return "; ".join(parts)


def _decide_nothing(barred: Sequence[Barred]) -> str:
    """`one launch, which decides nothing: n 2 0.5×`, for each reason. A withheld gain is not
    told."""
    found: dict[str, list[str]] = {}
    for one in barred:
        gain = "" if one.withheld else f" {one.case.gain.value:.3g}×"
        found.setdefault(one.why, []).append(text.case_label(one.case.case_id) + gain)
    said = (
        f"{why}, which decides nothing: {', '.join(_first(cases))}" for why, cases in found.items()
    )
    return "; ".join(said)


def conditions(one: Judgement) -> str:
    """Cases where it holds only in some, cards, launches, and the records that were used; where
    none decide, the command that makes them."""
    parts, records = [], one.records
    if one.claim.test and one.claim.test.control and records:
        parts.append(f"over {one.claim.test.baseline}, a control, as the article has it")
    if one.verdict == UNDER_CONDITIONS:
        inside = [text.case_label(case.case_id) for case in one.cases if case.place == INSIDE]
        parts.append("holds for " + "; ".join(_first(inside)))
    if records:
        parts += _basis(one.evidence)
    parts += sorted({record.context.build.doubt for record in records} - {""})
    return ", ".join([*parts, *filter(None, [one.command])])


def _basis(cases: Sequence[CaseResult]) -> Iterator[str]:
    """Cards, runs and launches of cases, what is in doubt, what bounds them, and their records."""
    if all(case.cards for case in cases):
        yield _span([len(case.cards) for case in cases], "card")
    yield _span([len(case.figure.runs) for case in cases], "run")
    yield _span([case.gain.launches for case in cases], "launch", "es") + " a case"
    grades = [case.grade for case in cases]
    yield from filter(None, dict.fromkeys(one.text for one in grades))
    yield from dict.fromkeys(doubt for case in cases for doubt in case.figure.doubts)
    yield f"bound by {', '.join(dict.fromkeys(one.bound for one in grades))}"
    yield from _first(list(filter(None, dict.fromkeys(one.beside for one in grades))))
    records = [record for case in cases for record in case.records]
    yield f"{len(records)} record{'s' * (len(records) > 1)}, the first {records[0].citation}"


def _first(cases: Sequence[str]) -> list[str]:
    rest = len(cases) - SHOWN_CASES
    return [*cases[:SHOWN_CASES], *([f"{rest} more"] if rest > 0 else [])]


def _span(counts: Sequence[int], what: str, plural: str = "s") -> str:
    """`3 launches`, `one run` or `1 to 4 cards`."""
    low, high = min(counts), max(counts)
    number = f"{low} to {high}" if low != high else "one" if low == 1 else f"{low}"
    return f"{number} {what}{'' if high == 1 else plural}"
