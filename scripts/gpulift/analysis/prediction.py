"""Whether launches that were measured again fall where those of a record predict them.

A launch's value is the logarithm of an arm's speedup, or of a ceiling's rate or time per item. The
mean of m new launches is inside when it lies in the 95 % prediction interval from the n launches of
the record: mean +- t(0.975, n - 1) * s * sqrt(1 / n + 1 / m), back through exp (G. J. Hahn and
W. Q. Meeker, Statistical Intervals, 1991: prediction interval for the mean of m future
observations).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from gpulift.analysis import arms
from gpulift.ground.estimate import CONFIDENCE
from gpulift.records.model import Cost, Record
from gpulift.verdicts import stats

INSIDE = "inside"
OUTSIDE = "outside"
INCONCLUSIVE = "inconclusive"
NOT_MEASURED = "not measured"
ENOUGH_LAUNCHES = 2
LARGEST_LOG = 700.0  # of ends that a float holds
LEAST_ERROR = 1e-6  # equal times of a coarse timer are no proof


@dataclass(frozen=True)
class Quantity:
    """What of an arm is compared: `unit` of a speedup is empty, of a time per item or step s."""

    name: str
    unit: str = ""


@dataclass(frozen=True)
class Answer:
    """An arm then and now. `low` to `high` is where the new mean was expected."""

    arm: str
    quantity: Quantity
    verdict: str
    launches_then: int
    launches_now: int
    then: float | None = None
    now: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    @property
    def beyond(self) -> float:
        """How far outside, relative to the nearer end: below 0 is lower; 0 where it is not."""
        if self.now is None or self.low is None or self.high is None:
            return 0.0
        if self.now > self.high:
            return self.now / self.high - 1
        return min(0.0, self.now / self.low - 1)

    @property
    def unseen(self) -> float:
        """How far, relative to what was measured then, the interval reaches to its farther end."""
        if self.then is None or self.low is None or self.high is None:
            return 0.0
        return max(self.high / self.then - 1, 1 - self.low / self.then)


def prediction_interval(logs: Sequence[float], future: int) -> tuple[float, float]:
    """Where the mean of so many future values falls in 95 of 100 such cases; of two or more."""
    count = len(logs)
    spread = float(np.std(logs, ddof=1)) * math.sqrt(1 / count + 1 / future)
    quantile = float(scipy.special.stdtrit(count - 1, 0.5 + CONFIDENCE / 2))
    half = quantile * max(spread, LEAST_ERROR)
    mean = float(np.mean(logs))
    return mean - half, mean + half


def answers(then: Sequence[Record], now: Sequence[Record]) -> tuple[Answer, ...]:
    """One for each arm that the old launches measured and that is no baseline, in their order."""
    names = dict.fromkeys(name for record in then for name in _judged(record))
    return tuple(_answer(name, then, now) for name in names)


def can_predict(then: Sequence[Record]) -> bool:
    """Whether any arm was measured in enough launches for an interval."""
    return any(one.launches_then >= ENOUGH_LAUNCHES for one in answers(then, ()))


def _answer(name: str, then: Sequence[Record], now: Sequence[Record]) -> Answer:
    old, new = _logs(then, name), _logs(now, name)
    made = Answer(
        arm=name,
        quantity=next(_quantity(record, name) for record in then if _logs([record], name)),
        verdict=INCONCLUSIVE,
        launches_then=len(old),
        launches_now=len(new),
        then=math.exp(float(np.mean(old))),
        now=math.exp(float(np.mean(new))) if new else None,
    )
    if not new:
        return replace(made, verdict=NOT_MEASURED, reason=_why_not(now, name))
    if len(old) < ENOUGH_LAUNCHES:
        return replace(made, reason="one launch has no prediction interval")
    low, high = prediction_interval(old, len(new))
    verdict = INSIDE if low <= float(np.mean(new)) <= high else OUTSIDE
    return replace(made, verdict=verdict, low=_exp(low), high=_exp(high))


def _exp(log: float) -> float:
    """Ends that no float holds are as good as the largest."""
    return math.exp(min(log, LARGEST_LOG))


def _judged(record: Record) -> list[str]:
    """The arms with a figure of their own: of a ceiling all, else those beside the baseline."""
    return [arm.name for arm in record.arms if _logs([record], arm.name)]


def _logs(records: Sequence[Record], name: str) -> list[float]:
    """The arm's value in each launch that has one."""
    values = (_value(record, name) for record in records)
    return [math.log(value) for value in values if value is not None]


def _value(record: Record, name: str) -> float | None:
    if record.outcome != "ok":
        return None
    if not arms.is_ceiling(record):
        baseline = arms.baseline_of(record)
        if baseline is None or name == baseline.name:
            return None
        pair = stats.pair_ratio([record], name, baseline.name)
        return pair.speedup.value if pair else None
    time = stats.step_time([record], name)
    arm = record.arm(name)
    if time is None or arm is None:
        return None
    cost = arm.cost or Cost()
    work = stats.work_for_roof(cost)
    return work / time.value if work > 0 else time.value / (cost.items or 1)


def _quantity(record: Record, name: str) -> Quantity:
    """A speedup; of a ceiling its rate, or the time where a step moves and computes nothing."""
    arm = record.arm(name)
    if arm is None or not arms.is_ceiling(record):
        return Quantity("speedup")
    cost = arm.cost or Cost()
    if stats.work_for_roof(cost) > 0:
        return Quantity("rate", "FLOP/s" if stats.counts_operations(cost.roof) else "B/s")
    return Quantity("time per item" if cost.items else "time per step", "s")


def _why_not(now: Sequence[Record], name: str) -> str:
    for record in now:
        arm = record.arm(name)
        reason = arm.reason if arm and arm.outcome != "ok" else record.reason
        if reason:
            return reason
    return "no new launch has it"
