"""Every statistic that gpulift reports; pure functions of records, with scipy behind them.

Method 1, in the order of the computation (log is the natural logarithm, windows are divided by
their steps):

- block value of an arm: mean log step time of the arm's windows in the block minus that of the
  baseline's. In a palindrome (A B B A) a linear drift cancels exactly.
- launch value: the median of its block values.
- ratio: exp of the mean of the launch values. Its interval: mean +- t(0.975, n - 1) * s / sqrt(n)
  over n launches, back through exp (95 %).
- one launch alone says nothing about the next one; its interval is the 97.5 % order-statistic
  interval of the median of its blocks, and it is marked "one launch".
- speedup: baseline time / arm time, the inverse of the ratio, so that more than 1 is faster.
- step time: per launch the median window, then the same over launches (a geometric mean).
- cycles: a step's time times the SM clock of its window. The ratio in cycles tells slower code from
  a slower clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gpulift.records.model import Arm, Cost, Record

CONFIDENCE = 0.95
ONE_LAUNCH_CONFIDENCE = 0.975

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A positive quantity with its interval, which is absent where too little was measured."""

    value: float
    low: float | None = None
    high: float | None = None
    launches: int = 0
    confidence: float = CONFIDENCE

    @property
    def one_launch(self) -> bool:
        """The interval does not hold the variation from launch to launch."""
        return self.launches == 1

    @property
    def half_width(self) -> float | None:
        """Half the interval, relative to the value."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / (2 * self.value)

    def inverse(self) -> Estimate:
        """1 / x: its interval turns around."""
        low = None if self.high is None else 1 / self.high
        high = None if self.low is None else 1 / self.low
        return Estimate(1 / self.value, low, high, self.launches, self.confidence)

    def scaled(self, factor: float) -> Estimate:
        """The quantity times an exact positive factor."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Estimate(self.value * factor, low, high, self.launches, self.confidence)


@dataclass(frozen=True)
class PairRatio:
    """An arm against a baseline: `ratio` is arm time / baseline time."""

    ratio: Estimate
    cycles: Estimate | None
    log_sd: float | None
    blocks: int
    clocks_differ: bool

    @property
    def speedup(self) -> Estimate:
        """Baseline time / arm time: more than 1 is faster."""
        return self.ratio.inverse()


def step_times(arm: Arm) -> Values:
    """Seconds of one step, for each window, on the clock that judges the arm."""
    return np.asarray(arm.window_s, dtype=np.float64) / arm.steps_per_window


def step_cycles(arm: Arm) -> Values | None:
    """SM clock cycles of one step, for each window; None without a clock for every window."""
    clock = np.asarray(arm.windows.sm_clock_hz, dtype=np.float64)
    if arm.clock != "device" or clock.size != len(arm.window_s) or not np.all(clock > 0):
        return None
    return step_times(arm) * clock


def block_values(
    blocks: Sequence[Sequence[int]], arm: int, baseline: int, values: dict[int, Values]
) -> Values:
    """Per block: mean log value of the arm minus that of the baseline.

    `values` holds the windows of both arms in the order of their turns. Blocks that lack one of
    the two arms give no value.
    """
    arm_means, arm_turns = _block_means(blocks, arm, values[arm])
    baseline_means, baseline_turns = _block_means(blocks, baseline, values[baseline])
    both = (arm_turns > 0) & (baseline_turns > 0)
    return arm_means[both] - baseline_means[both]


def _block_means(
    blocks: Sequence[Sequence[int]], arm: int, values: Values
) -> tuple[Values, NDArray[np.intp]]:
    """Per block: mean log value of the arm (0 without a turn), and its number of turns."""
    turns = np.asarray([block.count(arm) for block in blocks], dtype=np.intp)
    block_of = np.repeat(np.arange(turns.size), turns)
    logs = np.log(values[: block_of.size])
    sums = np.bincount(block_of, weights=logs, minlength=turns.size)
    return sums / np.maximum(turns, 1), turns


def over_launches(launch_logs: Sequence[float], within_one: Values) -> Estimate:
    """The estimate from one log value per launch; `within_one` serves when there is one launch."""
    count = len(launch_logs)
    if count == 1:
        return _median_of_one_launch(launch_logs[0], within_one)
    mean = float(np.mean(launch_logs))
    spread = float(np.std(launch_logs, ddof=1))
    half = _t_quantile(count) * spread / math.sqrt(count)
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)


@cache
def _t_quantile(count: int) -> float:
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1))


def pair_ratio(records: Sequence[Record], arm: str, baseline: str) -> PairRatio | None:
    """Arm against baseline over the launches in which both were measured; None without any."""
    per_launch = [values for record in records if (values := _pair(record, arm, baseline, False))]
    if not per_launch:
        return None
    blocks = [values for values, _ in per_launch]
    logs = [float(np.median(values)) for values in blocks]
    in_cycles = [values for record in records if (values := _pair(record, arm, baseline, True))]
    cycle_logs = [float(np.median(values)) for values, _ in in_cycles]
    complete = len(in_cycles) == len(per_launch)
    return PairRatio(
        ratio=over_launches(logs, blocks[0]),
        cycles=over_launches(cycle_logs, in_cycles[0][0]) if complete else None,
        log_sd=float(np.std(logs, ddof=1)) if len(logs) > 1 else None,
        blocks=sum(len(values) for values in blocks),
        clocks_differ=any(differ for _, differ in per_launch),
    )


def step_time(records: Sequence[Record], arm: str) -> Estimate | None:
    """Seconds of one step: the median window of each launch, then over launches."""
    launches = measured_arms(records, arm)
    if not launches:
        return None
    logs = [float(np.log(one.step_quartiles_s[1])) for one in launches]
    return over_launches(logs, np.log(step_times(launches[0])))


def spread(records: Sequence[Record], arm: str) -> float | None:
    """Interquartile range of an arm's windows over their median; the median over launches."""
    quartiles = [one.step_quartiles_s for one in measured_arms(records, arm)]
    relative = [(high - low) / middle for low, middle, high in quartiles]
    return float(np.median(relative)) if relative else None


def rate(time_s: Estimate, work: float) -> Estimate:
    """Work per second, for a step that does `work`."""
    return time_s.inverse().scaled(work)


def work_for_roof(cost: Cost) -> float:
    """What of a step counts towards its roof: operations under a GEMM roof, bytes otherwise."""
    return cost.flops if cost.roof.startswith("gemm/") else cost.bytes


def median_over(values: Sequence[float]) -> float | None:
    """The median, or None of nothing."""
    return float(np.median(values)) if values else None


def measured_arms(records: Sequence[Record], name: str) -> list[Arm]:
    """The arm of that name in each record where it has windows to judge."""
    arms = (record.arm(name) for record in records)
    return [arm for arm in arms if arm is not None and _measured(arm)]


def _measured(arm: Arm) -> bool:
    return arm.outcome == "ok" and len(arm.window_s) > 0


def _pair(record: Record, arm: str, baseline: str, in_cycles: bool) -> tuple[Values, bool] | None:
    """Block values of one launch, and whether two clocks judged them; None if not measured."""
    names = [measured.name for measured in record.arms if _measured(measured)]
    if record.order is None or arm not in names or baseline not in names:
        return None
    values: dict[int, Values] = {}
    clocks: set[str] = set()
    for index, measured in enumerate(record.arms):
        if measured.name in (arm, baseline):
            steps = step_cycles(measured) if in_cycles else step_times(measured)
            if steps is None:
                return None
            values[index] = steps
            clocks.add(measured.clock)
    index_of = {measured.name: index for index, measured in enumerate(record.arms)}
    differences = block_values(record.order.blocks, index_of[arm], index_of[baseline], values)
    return (differences, len(clocks) > 1) if differences.size else None


def _median_of_one_launch(log_value: float, values: Values) -> Estimate:
    """The order statistics k and n + 1 - k hold the median with probability 1 - 2 P(B < k)."""
    order = int(stats.binom.ppf((1 - ONE_LAUNCH_CONFIDENCE) / 2, values.size, 0.5))
    if order == 0:  # fewer than seven values: not even the extremes reach the confidence
        return Estimate(math.exp(log_value), None, None, 1, ONE_LAUNCH_CONFIDENCE)
    ordered = np.sort(values)
    low, high = float(ordered[order - 1]), float(ordered[-order])
    return Estimate(math.exp(log_value), math.exp(low), math.exp(high), 1, ONE_LAUNCH_CONFIDENCE)
