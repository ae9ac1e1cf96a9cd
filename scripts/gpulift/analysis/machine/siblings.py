"""Cards of one machine against each other: which one stands out, and what running together costs.

All cards and checks are one family (`spread`). Few cards give a poor deviation, so one stands out
only when its own interval, over launches, is away from the median as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpulift.analysis.machine.checks import measured_checks
from gpulift.analysis.machine.results import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    SKIPPED,
    Check,
    CheckResult,
    Standing,
    that_judge_cards,
    told_of_products,
)
from gpulift.analysis.machine.spread import limits, logs_of, spread_of
from gpulift.analysis.reference import Measured
from gpulift.analysis.summary import Summary
from gpulift.analysis.today import UNKNOWN, Today
from gpulift.ground.errors import GpuliftError
from gpulift.ground.estimate import Estimate

WORTH_FAILING = 0.05  # sound cards of one model differ by up to 3 % in their products' roofs
ENOUGH_CARDS = 3
ALONE = "alone"
TOGETHER = "together"


@dataclass(frozen=True)
class Crowding:
    """What one check loses when all cards are busy: speed together / speed alone, per card."""

    check: str
    unit: str
    cards: int
    median: float
    worst: float
    worst_card: str


@dataclass(frozen=True)
class Siblings:
    """The comparison of all cards of a machine."""

    cards: tuple[str, ...]
    standings: tuple[Standing, ...]
    crowding: tuple[Crowding, ...]
    note: str = ""

    @property
    def outliers(self) -> tuple[Standing, ...]:
        """The slow ones, the furthest first."""
        outliers = (one for one in self.standings if one.named)
        return tuple(sorted(outliers, key=lambda s: (-abs(s.distance), s.card, s.check)))


def compare_siblings(
    alone: Mapping[str, Summary],
    together: Mapping[str, Summary] | None = None,
    today: Today = UNKNOWN,
) -> Siblings:
    """Compares cards by name: each measured alone, and all at once; of each check those that did
    the same work.

    Raises GpuliftError for cards of several models, which are no siblings.
    """
    busy = together or {}
    models = {summary.run.machine for summary in (*alone.values(), *busy.values())}
    if len(models) > 1:
        raise GpuliftError(f"cards of several models: {', '.join(sorted(models))}; compare one")
    cards = tuple(sorted({*alone, *busy}))
    few = len(cards) < ENOUGH_CARDS
    note = f"{len(cards)} cards: no outlier can be named, that takes {ENOUGH_CARDS}" if few else ""
    quiet, loud = _by_check(alone, today), _by_check(busy, today)
    measured = {} if few else {ALONE: quiet, TOGETHER: loud}
    known = _known([*alone.values(), *busy.values()])
    return Siblings(cards, _standings(measured, known), tuple(_crowding(quiet, loud)), note)


def judge_siblings(siblings: Siblings) -> tuple[CheckResult, ...]:
    """One row per card: it fails where it is the slow one in any check."""
    if siblings.note:
        return (CheckResult("siblings", SKIPPED, siblings.note, kind="siblings"),)
    return tuple(_judge_card(card, siblings) for card in siblings.cards)


def _judge_card(card: str, siblings: Siblings) -> CheckResult:
    own = [standing for standing in siblings.standings if standing.card == card]
    judging = that_judge_cards(standing.check for standing in own)
    roofs = tuple(standing for standing in own if standing.check in judging)
    if not roofs:
        reason = f"no roof of it was measured that {ENOUGH_CARDS} cards have"
        remedy = "./gpulift qualify --quick measures them"
        return CheckResult(f"siblings/{card}", SKIPPED, reason, remedy, kind="siblings")
    outliers = [standing for standing in roofs if standing.named]
    slow = sorted(outliers, key=lambda standing: -abs(standing.deviation))
    if not slow:
        products = told_of_products(judging)
        by = f", by {products}" if products else ""
        reason = f"none of its roofs is below those of its {len(siblings.cards) - 1} siblings{by}"
        return CheckResult(f"siblings/{card}", PASS, reason, kind="siblings", standings=roofs)
    worst = slow[0]
    reason = (
        f"{len(slow)} checks stand out; most {worst.check} {worst.setting}: "
        f"{100 * worst.deviation:+.1f} % from the median, {abs(worst.distance):.1f} deviations"
    )
    remedy = "look at this card's health, slot and cooling; change places with a sibling"
    verdict = FAIL if abs(worst.deviation) > WORTH_FAILING else INCONCLUSIVE
    return CheckResult(
        f"siblings/{card}", verdict, reason, remedy, kind="siblings", standings=roofs
    )


def _by_check(summaries: Mapping[str, Summary], today: Today) -> dict[str, dict[str, Check]]:
    """Check id -> card -> what was measured, of the text that most cards have, the newest of
    equals: what a change of the work does no card does."""
    by_text: dict[tuple[str, object], dict[str, Check]] = {}
    for card, summary in sorted(summaries.items()):
        for check in measured_checks(summary):
            text = today.text_key(check.case.first)
            by_text.setdefault((check.id, text), {})[card] = check
    checks: dict[str, dict[str, Check]] = {}
    for (id, _), cards in by_text.items():
        checks[id] = max(checks.get(id, cards), cards, key=_weight)
    return checks


def _weight(cards: Mapping[str, Check]) -> tuple[int, str]:
    return len(cards), max(check.case.first.began_at for check in cards.values())


def _known(summaries: Sequence[Summary]) -> Mapping[str, Measured]:
    """What a reference has of the model."""
    return next((one.reference.measured for one in summaries if one.reference), {})


def _standings(
    measured: Mapping[str, Mapping[str, Mapping[str, Check]]], known: Mapping[str, Measured]
) -> tuple[Standing, ...]:
    """Of each setting and check that enough cards have."""
    rows = [
        (setting, id, cards)
        for setting, checks in measured.items()
        for id, cards in sorted(checks.items())
        if len(cards) >= ENOUGH_CARDS
    ]
    tests = sum(len(cards) for *_, cards in rows)
    return tuple(
        standing
        for setting, id, cards in rows
        for standing in _of_check(id, setting, cards, tests, known.get(id))
    )


def _of_check(
    id: str, setting: str, cards: Mapping[str, Check], tests: int, entry: Measured | None
) -> Iterator[Standing]:
    logs = logs_of([one.estimate.value for one in cards.values()])
    spread = spread_of(logs)
    median, distances = math.exp(spread.center), spread.distances(logs).tolist()
    needed = limits(len(cards), tests, entry.tolerance if entry else None)
    for (card, check), distance in zip(cards.items(), distances, strict=True):
        yield Standing(
            card=card,
            check=id,
            setting=setting,
            value=check.estimate.value,
            unit=check.unit,
            median=median,
            distance=distance,
            higher_is_better=check.higher_is_better,
            nearest=nearest_to(check.estimate, median),
            far=needed.far,
            least=needed.least,
            measured=check,
        )


def distances_from_median(rates: Sequence[float]) -> tuple[float, list[float]]:
    """The median of pairs' rates, and how far each is off in robust standard deviations."""
    logs = logs_of(rates)
    spread = spread_of(logs, tails=False)
    return math.exp(spread.center), spread.distances(logs).tolist()


def nearest_to(estimate: Estimate, median: float) -> float:
    """The end of the interval towards the median, or the median where the interval holds it."""
    if estimate.one_launch or estimate.low is None or estimate.high is None:
        return median  # one launch tells nothing of the next
    return min(max(median, estimate.low), estimate.high)


def _crowding(
    alone: Mapping[str, Mapping[str, Check]], together: Mapping[str, Mapping[str, Check]]
) -> list[Crowding]:
    crowding = []
    for id in sorted(alone.keys() & together.keys()):
        speeds = {
            card: _speed(together[id][card]) / _speed(check)
            for card, check in alone[id].items()
            if card in together[id]
        }
        if speeds:
            worst = min(speeds, key=lambda card: (speeds[card], card))
            unit = next(iter(alone[id].values())).unit
            middle = float(np.median(list(speeds.values())))
            crowding.append(Crowding(id, unit, len(speeds), middle, speeds[worst], worst))
    return crowding


def _speed(check: Check) -> float:
    value = check.estimate.value
    return value if check.higher_is_better else 1 / value
