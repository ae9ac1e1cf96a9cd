"""How far cards or nodes of one model lie apart in a check, and from where on one stands out.

The distance of one is that of its log value from the median over all, in robust standard
deviations. A small sample's are corrected (C. Croux and P. J. Rousseeuw, COMPSTAT 1992, 411-428).
Of many the outer tenths on either side tell of long tails, as links of busy hosts have, which the
median absolute deviation does not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from gpulift.analysis.machine.results import FAR, LEAST_DEVIATION

Values = NDArray[np.float64]

FLOOR = 0.0025
MANY = 20  # from so many on the spread is theirs alone
WRONG = 0.01  # of families, those in which a sound one may be named
TAILS = 12  # degrees of freedom: tails longer than any that was recorded (certificates/fleet.md)
NORMAL = 1.4826  # x median absolute deviation
SMALL_SAMPLE = {3: 1.495, 4: 1.363, 5: 1.206, 6: 1.2, 7: 1.14, 8: 1.129, 9: 1.107}
TENTH = 0.1


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
    """Of three values or more. Without `tails` a slow tenth does not widen it: one slow card has a
    part in many pairs."""
    center = float(np.median(logs))
    least = NORMAL * float(np.median(np.abs(logs - center))) * _correction(logs.size)
    least = max(least, FLOOR)
    if logs.size < MANY or not tails:
        return Spread(center, least, least)
    tenths = np.abs(np.quantile(logs, (TENTH, 1 - TENTH)) - center) / -scipy.special.ndtri(TENTH)
    below, above = (max(least, float(one)) for one in tenths)
    return Spread(center, below, above)


@dataclass(frozen=True)
class Limits:
    """One stands out more than `far` deviations away, its whole interval more than `least`, a
    fraction."""

    far: float
    least: float


def limits(count: int, tests: int, tolerance: float | None) -> Limits:
    """For one of so many in a family of so many tests (Bonferroni).

    Few do not tell by what sound cards of their model differ. The tolerance of a reference does.
    """
    if count < MANY:
        return Limits(FAR, max(LEAST_DEVIATION, tolerance or 0.0))
    return Limits(-float(scipy.special.stdtrit(TAILS, WRONG / 2 / tests)), LEAST_DEVIATION)


def _correction(count: int) -> float:
    return SMALL_SAMPLE.get(count, count / (count - 0.8))


def logs_of(values: Sequence[float]) -> Values:
    """Of positive values."""
    return np.log(np.asarray(values, dtype=np.float64))
