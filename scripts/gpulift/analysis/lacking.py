"""What records do not tell yet, in the order of what readers gain by it: rows of BEGIN that a case
would fill or make surer, claims that are not decided, techniques without three launches of today's
text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpulift.analysis.begin_rows import Known, answers
from gpulift.analysis.choice import ENOUGH_LAUNCHES
from gpulift.analysis.claims import NOT_DECIDED, NOT_MEASURED, Judgement
from gpulift.analysis.standing import ONE_LAUNCH
from gpulift.analysis.things import SITUATIONS
from gpulift.analysis.today import TODAYS
from gpulift.engine.machine import TechniqueInfo
from gpulift.records.model import Record

CaseName = tuple[str, str]  # technique and case
Lack = tuple[str, str, str, str]  # technique, case, what that would fill, which of these
Fills = dict[str, list[str]]  # what a case would fill, by what that is
FILLS, SURER, CLAIMS, LAUNCHES = "fills in BEGIN", "surer in BEGIN", "claims", "launches of today"


def lacking(
    known: Known,
    judgements: Iterable[Judgement],
    techniques: Sequence[TechniqueInfo],
    records: Iterable[Record],
    model: str,
) -> dict[CaseName, Fills]:
    """The cases to measure, in this order, each with what it would fill. Judgements and records are
    those of the model. Left out is what none of these techniques has, and what three launches of
    today's text did not fill: more would not, either."""
    today = known.today
    launches = Counter(
        (one.technique, today.case_id(one))
        for one in records
        if one.outcome == "ok" and today.text(one) in (TODAYS, "")  # or a user's own technique
    )
    cases = {info.id: [case.id for case in info.cases] for info in techniques}
    found: dict[CaseName, Fills] = {}
    for technique, case, what, words in (
        *_rows(known),
        *_claims(judgements, cases, launches, model),
        *_techniques(techniques, launches),
    ):
        name = (technique, case)
        if case in cases.get(technique, ()) and launches[name] < ENOUGH_LAUNCHES:
            told = found.setdefault(name, {}).setdefault(what, [])
            told += [words] if words not in told else []
    return found


def told(fills: Fills) -> str:
    """`surer in BEGIN: BF16, FP8 linear layers; claims: fp8-faster`."""
    return "; ".join(f"{what}: {', '.join(words)}" for what, words in fills.items())


def _rows(known: Known) -> Iterator[Lack]:
    for situation in SITUATIONS:
        for one in answers(situation, known):
            if one.surer:
                what = SURER if one.shown else FILLS
                yield one.surer.technique, one.surer.case, what, one.thing.words


def _claims(
    judgements: Iterable[Judgement],
    cases: Mapping[str, Sequence[str]],
    launches: Counter[CaseName],
    model: str,
) -> Iterator[Lack]:
    """Of a claim that nothing decides the cases that lack launches alone, else the first one."""
    for one in judgements:
        test = one.claim.test
        if one.verdict in (NOT_DECIDED, NOT_MEASURED) and test and test.gpu in model:
            once = [each.case.case_id for each in one.barred if each.why == ONE_LAUNCH]
            every = [id for id in cases.get(test.technique, ()) if re.search(test.cases, id)]
            if all(launches[test.technique, id] < ENOUGH_LAUNCHES for id in every):
                for case in once or every[:1]:
                    yield test.technique, case, CLAIMS, one.claim.id


def _techniques(techniques: Sequence[TechniqueInfo], launches: Counter[CaseName]) -> Iterator[Lack]:
    """The leading case, the first of the quick ones, of those without three launches of a case."""
    for info in techniques:
        most = max((launches[info.id, case.id] for case in info.cases), default=ENOUGH_LAUNCHES)
        if most < ENOUGH_LAUNCHES:
            leading = next((case for case in info.cases if case.quick), info.cases[0])
            yield info.id, leading.id, LAUNCHES, f"{most} of {ENOUGH_LAUNCHES}"
