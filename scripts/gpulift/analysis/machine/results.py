"""Types of a verdict on a machine: what was judged, a place among others, the row of a check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from gpulift.analysis.reference import Measured, Peak
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Record
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

PASS = "pass"
FAIL = "fail"
INCONCLUSIVE = "inconclusive"
SKIPPED = "skipped"
VERDICTS = (PASS, FAIL, INCONCLUSIVE, SKIPPED)
WORST_FIRST = (FAIL, INCONCLUSIVE, PASS, SKIPPED)

WORTH_FAILING = 0.05  # sound cards of one model differ by up to 3 % in their products' roofs
ROOF, FIXED = "roof/", "fixed/"  # how checks of roofs, and of fixed products, begin


def that_judge_cards(checks: Iterable[str]) -> frozenset[str]:
    """Of a card's checks those by which it is held against others of its model: its roofs, but a
    fixed product in place of the roof of its format where it has one, since the shapes that
    searches find set sound cards apart."""
    known = set(checks)
    fixed = {one for one in known if one.startswith(FIXED)}
    searched = {ROOF + one.removeprefix(FIXED) for one in fixed}
    return frozenset(fixed | {one for one in known if one.startswith(ROOF)} - searched)


def told_of_products(checks: Iterable[str]) -> str:
    """By which products these hold cards against each other; empty where by none."""
    known = that_judge_cards(checks)
    if any(one.startswith(FIXED) for one in known):
        return "products of one shape and algorithm"
    searched = any(one.startswith(f"{ROOF}gemm/") for one in known)
    return "products of the shapes that each run searched" if searched else ""


@dataclass(frozen=True)
class Check:
    """A quantity that a run measured: a rate in B/s or FLOP/s, or a time per item in seconds."""

    id: str
    unit: str
    estimate: Estimate
    case: Case
    arm: str
    work: float
    roof: str = ""

    @property
    def higher_is_better(self) -> bool:
        """Rates are better when higher, times when lower."""
        return self.unit != "s"

    @property
    def records(self) -> tuple[Record, ...]:
        """The launches behind the estimate."""
        return tuple(r for r in self.case.measured if stats.measured_arms([r], self.arm))

    @property
    def launch_values(self) -> tuple[float, ...]:
        """One value per launch: of its median window."""
        arms = stats.measured_arms(self.case.measured, self.arm)
        times = [float(np.median(stats.step_times(arm))) for arm in arms]
        return tuple(self.work / t if self.higher_is_better else t / self.work for t in times)


@dataclass(frozen=True, slots=True)
class Rate:
    """A quantity of a card, a pair or a node, and the ends of its interval, none of one launch."""

    name: str
    check: str
    value: float
    low: float | None = None
    high: float | None = None
    unit: str = "B/s"
    node: str = ""
    model: str = ""
    setting: str = ""
    tolerance: float = 0.0  # of the model's reference
    measured: Check | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, name: str, check: str, estimate: Estimate, **others: Any) -> Rate:
        """With the interval of an estimate over several launches."""
        ends = (None, None) if estimate.one_launch else (estimate.low, estimate.high)
        return cls(name, check, estimate.value, *ends, **others)

    @property
    def higher_is_better(self) -> bool:
        """Rates are better when higher, times when lower."""
        return self.unit != "s"


@dataclass(frozen=True, slots=True)
class Limits:
    """An outlier is more than `far` deviations away, its whole interval more than `least`, a
    fraction."""

    far: float
    least: float


@dataclass(frozen=True, slots=True)
class Position:
    """A rate among the others: a fraction from their median, and in robust standard deviations;
    `nearest` is the end of its interval towards the median."""

    rate: Rate
    median: float
    distance: float
    nearest: float
    count: int  # of those compared
    limits: Limits

    @property
    def deviation(self) -> float:
        """From the median, as a fraction."""
        return self.rate.value / self.median - 1

    @property
    def nearest_deviation(self) -> float:
        """From the median to the near end of the interval, as a fraction."""
        return self.nearest / self.median - 1

    @property
    def nearness(self) -> float:
        """The share of the distance from which on a rate is an outlier below."""
        return -self.distance / self.limits.far

    @property
    def outlier(self) -> bool:
        """Whether it is that far away, on either side."""
        far, least = self.limits.far, self.limits.least
        return abs(self.distance) > far and abs(self.nearest_deviation) > least

    @property
    def slower(self) -> bool:
        """Whether it is on the bad side of the median."""
        value = self.rate.value
        return (value < self.median) == self.rate.higher_is_better and value != self.median

    @property
    def named(self) -> bool:
        """Whether it is told to be slow: a fast one wants nothing done."""
        return self.outlier and self.slower

    @property
    def verdict(self) -> str:
        """Of one that is named."""
        return FAIL if abs(self.deviation) > WORTH_FAILING else INCONCLUSIVE

    def told(self, noun: str = "") -> str:
        """`-7.5 % from the median of 12 pairs, 9.1 deviations`."""
        of = f" of {self.count} {noun}" if noun else ""
        off = f"{100 * self.deviation:+.1f} % from the median{of}"
        return f"{off}, {abs(self.distance):.1f} deviations"


@dataclass(frozen=True)
class CheckResult:
    """One judgement, why, and what to do about it. `kind` is what judged it: measured, computed
    peak, health ...; `smallest_effect` the smallest deviation that would have failed for sure.

    `cards` and `launches` are how many are behind the reference; without a GPU there are no cards
    to count. `against` is what the limit was made of, in `unit`: the value of the `reference`, or
    a computed peak. `check` has the launches that were judged, and `positions` those of a card
    among its siblings.
    """

    id: str
    verdict: str
    reason: str = ""
    remedy: str = ""
    estimate: Estimate | None = None
    unit: str = ""
    limit: float | None = None
    tolerance: float | None = None
    fraction: float | None = None
    smallest_effect: float | None = None
    cards: int = 0
    launches: int = 0
    kind: str = ""
    against: float | None = None
    reference: Measured | Peak | None = None
    check: Check | None = field(default=None, compare=False, repr=False)
    positions: tuple[Position, ...] = field(default=(), compare=False, repr=False)

    @property
    def value(self) -> float | None:
        """What was measured."""
        return self.estimate.value if self.estimate else None


judged = partial(CheckResult, "")  # of a check that is named later
