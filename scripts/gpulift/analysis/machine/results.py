"""Types of a verdict on a machine: what was judged, the row of a qualification, siblings."""

from __future__ import annotations

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

FAR = 4.0  # robust standard deviations from the median of few cards
LEAST_DEVIATION = 0.01  # of a card that is named


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
