"""Which of several cards, pairs or nodes of one model is an outlier below the others.

The distance of a rate is that of its log value from the median over all, in robust standard
deviations. A small sample's are corrected (C. Croux and P. J. Rousseeuw, COMPSTAT 1992, 411-428).
Of many the outer tenths on either side tell of long tails, as links of busy hosts have, which the
median absolute deviation does not see. Few give a poor deviation, so an outlier's own interval,
over launches, is away from the median as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from gpulift.analysis.machine.results import Limits, Position, Rate

Values = NDArray[np.float64]

ENOUGH = 3  # to be compared
FAR = 4.0  # robust standard deviations from the median of few
LEAST_DEVIATION = 0.01
FLOOR = 0.0025
MANY = 20  # from so many on the spread is theirs alone
WRONG = 0.01  # of families, those in which a sound one may be named
TAILS = 12  # degrees of freedom: tails longer than any that was recorded (certificates/fleet.md)
NORMAL = 1.4826  # x median absolute deviation
SMALL_SAMPLE = {3: 1.495, 4: 1.363, 5: 1.206, 6: 1.2, 7: 1.14, 8: 1.129, 9: 1.107}
TENTH = 0.1


@dataclass(frozen=True)
class Group:
    """How far sound ones of a model lie apart in a check, and by what fraction one is named."""

    model: str
    check: str
    unit: str
    count: int
    median: float
    below: float  # robust standard deviation, of logs
    smallest: float


@dataclass(frozen=True)
class Family:
    """All rates that were compared, and the groups in which they were."""

    positions: tuple[Position, ...] = ()
    groups: tuple[Group, ...] = ()


def family_of(rates: Iterable[Rate], tails: bool = True) -> Family:
    """Each among those of its model, setting and check, where they are enough. Without `tails` a
    slow tenth does not widen their spread: one slow card has a part in many pairs."""
    alike: dict[tuple[str, str, str], list[Rate]] = {}
    for rate in rates:
        alike.setdefault((rate.model, rate.setting, rate.check), []).append(rate)
    enough = [group for _, group in sorted(alike.items()) if len(group) >= ENOUGH]
    tests = sum(map(len, enough))
    positions: list[Position] = []
    groups = []
    for group in enough:
        logs = logs_of([rate.value for rate in group])
        spread = spread_of(logs, tails)
        needed = limits(len(group), tests, max(rate.tolerance for rate in group))
        median, first = math.exp(spread.center), group[0]
        positions += (
            Position(rate, median, distance, _nearest(rate, median), len(group), needed)
            for rate, distance in zip(group, spread.distances(logs).tolist(), strict=True)
        )
        smallest = max(-math.expm1(-needed.far * spread.below), needed.least)
        spreads = (len(group), median, spread.below, smallest)
        groups.append(Group(first.model, first.check, first.unit, *spreads))
    return Family(tuple(positions), tuple(groups))


def _nearest(rate: Rate, median: float) -> float:
    """The median where the interval holds it, or of one launch, which tells nothing of the next."""
    if rate.low is None or rate.high is None:
        return median
    return min(max(median, rate.low), rate.high)


@dataclass(frozen=True)
class Spread:
    """The median of log values, and their robust standard deviation below it and above."""

    center: float
    below: float
    above: float

    def distances(self, logs: Values) -> Values:
        """Of each from the median, in deviations."""
        off = logs - self.center
        return off / np.where(off < 0, self.below, self.above)


def spread_of(logs: Values, tails: bool = True) -> Spread:
    """Of three values or more."""
    center = float(np.median(logs))
    least = NORMAL * float(np.median(np.abs(logs - center)))
    least = max(least * SMALL_SAMPLE.get(logs.size, logs.size / (logs.size - 0.8)), FLOOR)
    if logs.size < MANY or not tails:
        return Spread(center, least, least)
    tenths = np.abs(np.quantile(logs, (TENTH, 1 - TENTH)) - center) / -scipy.special.ndtri(TENTH)
    below, above = (max(least, float(tenth)) for tenth in tenths)
    return Spread(center, below, above)


def limits(count: int, tests: int, tolerance: float | None) -> Limits:
    """For one of so many in a family of so many tests (Bonferroni).

    Few do not tell by what sound cards of their model differ. The tolerance of a reference does.
    """
    if count < MANY:
        return Limits(FAR, max(LEAST_DEVIATION, tolerance or 0.0))
    return Limits(-float(scipy.special.stdtrit(TAILS, WRONG / 2 / tests)), LEAST_DEVIATION)


def logs_of(values: Sequence[float]) -> Values:
    """Of positive values."""
    return np.log(np.asarray(values, dtype=np.float64))
