"""Types of a verdict on a machine: what was judged, the row of a qualification, siblings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

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

ROOF, FIXED = "roof/", "fixed/"  # how checks of roofs, and of fixed products, begin
FAR = 4.0  # robust standard deviations from the median of few cards
LEAST_DEVIATION = 0.01  # of a card that is named


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


@dataclass(frozen=True)
class Standing:
    """One check of one card beside its siblings. `deviation` is a fraction, below 0: less.

    It stands out more than `far` robust standard deviations away, its whole interval more than
    `least`.
    """

    card: str
    check: str
    setting: str
    value: float
    unit: str
    median: float
    distance: float
    higher_is_better: bool
    nearest: float  # of the card's own interval to the median
    far: float
    least: float
    measured: Check = field(compare=False, repr=False)

    @property
    def deviation(self) -> float:
        """From the median of the cards, as a fraction."""
        return self.value / self.median - 1

    @property
    def nearest_deviation(self) -> float:
        """From the median of the cards to the near end of this card's interval, as a fraction."""
        return self.nearest / self.median - 1

    @property
    def outlier(self) -> bool:
        """Whether it is that far away."""
        return abs(self.distance) > self.far and abs(self.nearest_deviation) > self.least

    @property
    def slower(self) -> bool:
        """Whether it is on the bad side of the median."""
        return (self.value < self.median) == self.higher_is_better and self.value != self.median

    @property
    def named(self) -> bool:
        """Whether the card is told to be slow in it: a fast one wants nothing done."""
        return self.outlier and self.slower


@dataclass(frozen=True)
class CheckResult:
    """One row of a qualification. `kind` is what judged it: measured, computed peak, health ...

    `cards` and `launches` are how many are behind the reference; without a GPU there are no cards
    to count. `against` is what the limit was made of, in `unit`: the value of the `reference`, or
    a computed peak. `check` has the launches that were judged, and `standings` those of a card
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
    standings: tuple[Standing, ...] = field(default=(), compare=False, repr=False)

    @property
    def value(self) -> float | None:
        """What was measured."""
        return self.estimate.value if self.estimate else None
