"""Cards of one machine against each other: which is an outlier, and what running together costs.

All cards and checks are one family (`outliers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gpulift.analysis.machine.measured import measured_checks
from gpulift.analysis.machine.outliers import ENOUGH, family_of
from gpulift.analysis.machine.results import (
    PASS,
    SKIPPED,
    Check,
    CheckResult,
    Position,
    Rate,
    that_judge_cards,
    told_of_products,
)
from gpulift.analysis.reference import Measured
from gpulift.analysis.summary import Summary
from gpulift.analysis.today import UNKNOWN, Today
from gpulift.ground import text
from gpulift.ground.errors import GpuliftError

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
    positions: tuple[Position, ...]
    crowding: tuple[Crowding, ...]
    note: str = ""

    @property
    def title(self) -> str:
        """Of the rows of all cards."""
        return f"{text.counted(len(self.cards), 'card')} against each other"

    @property
    def outliers(self) -> tuple[Position, ...]:
        """The slow ones, the furthest first."""
        slow = (position for position in self.positions if position.named)
        return tuple(sorted(slow, key=lambda p: (-abs(p.distance), p.rate.name, p.rate.check)))


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
    summaries = [*alone.values(), *busy.values()]
    models = {summary.run.machine for summary in summaries}
    if len(models) > 1:
        raise GpuliftError(f"cards of several models: {', '.join(sorted(models))}; compare one")
    cards = tuple(sorted({*alone, *busy}))
    few = len(cards) < ENOUGH
    note = f"{len(cards)} cards: no outlier can be named, that takes {ENOUGH}" if few else ""
    measured = {ALONE: _by_check(alone, today), TOGETHER: _by_check(busy, today)}
    known = next((one.reference.measured for one in summaries if one.reference), {})
    positions = () if few else family_of(_rates(measured, known)).positions
    return Siblings(cards, positions, tuple(_crowding(*measured.values())), note)


def _rates(
    measured: Mapping[str, Mapping[str, Mapping[str, Check]]], known: Mapping[str, Measured]
) -> Iterator[Rate]:
    for setting, checks in measured.items():
        for id, cards in checks.items():
            tolerance = known[id].tolerance if id in known else 0.0
            for card, check in cards.items():
                others = {"unit": check.unit, "setting": setting, "tolerance": tolerance}
                yield Rate.of(card, id, check.estimate, measured=check, **others)


def judge_siblings(siblings: Siblings) -> tuple[CheckResult, ...]:
    """One row per card: it fails where it is the slow one in any check."""
    if siblings.note:
        return (CheckResult("siblings", SKIPPED, siblings.note, kind="siblings"),)
    return tuple(_judge_card(card, siblings) for card in siblings.cards)


def _judge_card(card: str, siblings: Siblings) -> CheckResult:
    own = [position for position in siblings.positions if position.rate.name == card]
    judging = that_judge_cards(position.rate.check for position in own)
    roofs = tuple(position for position in own if position.rate.check in judging)
    name = f"siblings/{card}"
    if not roofs:
        reason = f"no roof of it was measured that {ENOUGH} cards have"
        remedy = "./gpulift qualify --quick measures them"
        return CheckResult(name, SKIPPED, reason, remedy, kind="siblings")
    slow = [position for position in roofs if position.named]
    if not slow:
        products = told_of_products(judging)
        by = f", by {products}" if products else ""
        reason = f"none of its roofs is below those of its {len(siblings.cards) - 1} siblings{by}"
        lowest = min(roofs, key=lambda position: position.deviation)
        reason += f"; lowest in {lowest.rate.check} {lowest.rate.setting}: {lowest.told()}"
        return CheckResult(name, PASS, reason, kind="siblings", positions=roofs)
    worst = max(slow, key=lambda position: abs(position.deviation))
    most = f"{worst.rate.check} {worst.rate.setting}: {worst.told()}"
    reason = f"outlier in {text.counted(len(slow), 'check')}; most in {most}"
    remedy = "look at this card's health, slot and cooling; change places with a sibling"
    return CheckResult(name, worst.verdict, reason, remedy, kind="siblings", positions=roofs)


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
