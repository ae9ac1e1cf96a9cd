"""Cards of one machine against each other: which one stands out, and what running together costs.

The distance of a card is that of its log value from the median over all cards, in robust standard
deviations: 1.4826 x the median absolute deviation, which is the standard deviation of a normal
distribution (Rousseeuw and Croux, 1993). A floor of 0.25 % keeps cards that are all but identical
from standing infinitely far apart. Few cards give a poor deviation, so a card stands out only when
its own interval, over launches, is away from the median as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from gpulift.analysis.machine.checks import measured_checks
from gpulift.analysis.machine.results import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    SKIPPED,
    Check,
    CheckResult,
    Standing,
)
from gpulift.analysis.summary import Summary
from gpulift.ground.errors import GpuliftError
from gpulift.ground.estimate import Estimate

FLOOR = 0.0025
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
        """The furthest first."""
        outliers = (standing for standing in self.standings if standing.outlier)
        return tuple(sorted(outliers, key=lambda s: (-abs(s.distance), s.card, s.check)))


def compare_siblings(
    alone: Mapping[str, Summary], together: Mapping[str, Summary] | None = None
) -> Siblings:
    """Compares cards by name: each measured alone, and all at once.

    Raises GpuliftError for cards of several models, which are no siblings.
    """
    busy = together or {}
    models = {summary.run.machine for summary in (*alone.values(), *busy.values())}
    if len(models) > 1:
        raise GpuliftError(f"cards of several models: {', '.join(sorted(models))}; compare one")
    cards = tuple(sorted({*alone, *busy}))
    few = len(cards) < ENOUGH_CARDS
    note = f"{len(cards)} cards: no outlier can be named, that takes {ENOUGH_CARDS}" if few else ""
    quiet, loud = _by_check(alone), _by_check(busy)
    standings = [] if few else [*_standings(quiet, ALONE), *_standings(loud, TOGETHER)]
    return Siblings(cards, tuple(standings), tuple(_crowding(quiet, loud)), note)


def judge_siblings(siblings: Siblings) -> tuple[CheckResult, ...]:
    """One row per card: it fails where it is the slow one in any check."""
    if siblings.note:
        return (CheckResult("siblings", SKIPPED, siblings.note, kind="siblings"),)
    return tuple(_judge_card(card, siblings) for card in siblings.cards)


def _judge_card(card: str, siblings: Siblings) -> CheckResult:
    own = [standing for standing in siblings.standings if standing.card == card]
    roofs = tuple(standing for standing in own if standing.check.startswith("roof/"))
    if not roofs:
        reason = f"no roof of it was measured that {ENOUGH_CARDS} cards have"
        remedy = "./gpulift qualify --quick measures them"
        return CheckResult(f"siblings/{card}", SKIPPED, reason, remedy, kind="siblings")
    outliers = [standing for standing in roofs if standing.outlier and standing.slower]
    slow = sorted(outliers, key=lambda standing: -abs(standing.deviation))
    if not slow:
        reason = f"none of its roofs is below those of its {len(siblings.cards) - 1} siblings"
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


def _by_check(summaries: Mapping[str, Summary]) -> dict[str, dict[str, Check]]:
    """Check id -> card -> what was measured."""
    checks: dict[str, dict[str, Check]] = {}
    for card, summary in sorted(summaries.items()):
        for check in measured_checks(summary):
            checks.setdefault(check.id, {})[card] = check
    return checks


def _standings(checks: Mapping[str, Mapping[str, Check]], setting: str) -> list[Standing]:
    standings = []
    for id, cards in sorted(checks.items()):
        if len(cards) < ENOUGH_CARDS:
            continue
        median, distances = distances_from_median([one.estimate.value for one in cards.values()])
        for (card, check), distance in zip(cards.items(), distances, strict=True):
            standings.append(
                Standing(
                    card=card,
                    check=id,
                    setting=setting,
                    value=check.estimate.value,
                    unit=check.unit,
                    median=median,
                    distance=distance,
                    higher_is_better=check.higher_is_better,
                    nearest=nearest_to(check.estimate, median),
                    measured=check,
                )
            )
    return standings


def distances_from_median(values: Sequence[float]) -> tuple[float, list[float]]:
    """The median of positive values, and how far each is off in robust standard deviations."""
    logs = [math.log(value) for value in values]
    center = float(np.median(logs))
    scale = max(float(scipy.stats.median_abs_deviation(logs, scale="normal")), FLOOR)
    return math.exp(center), [(log - center) / scale for log in logs]


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
