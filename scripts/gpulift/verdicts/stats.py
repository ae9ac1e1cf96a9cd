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
- CPU seconds and joules: the ratio of what windows used, arm / baseline, computed as that of time.
- cycles: a step's time times the SM clock of its window. The ratio in cycles tells slower code from
  a slower clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise
from operator import mul
from statistics import fmean, median, median_high, median_low

import numpy as np
import scipy
from numpy.typing import NDArray

from gpulift.ground import registers
from gpulift.ground.estimate import CONFIDENCE, Estimate
from gpulift.records.model import TELLS_ALL, Arm, Cost, Record

ONE_LAUNCH_CONFIDENCE = 0.975
CPU_TICK_S = 0.01  # of the clock of CPU seconds
ENOUGH_CARDS = 3  # to stand for their model
OF_MEDIAN = math.pi / 2  # variance of a median over that of a mean, of many normal values
# Student's t(0.975) for 1, 2, ... degrees of freedom, as scipy has it, which takes 0.2 s to import.
T_975 = (
    12.706204736174694,
    4.302652729749462,
    3.1824463052837078,
    2.7764451051977934,
    2.5705818356363146,
    2.4469118511449786,
    2.364624251592784,
    2.306004135204166,
    2.262157162798205,
    2.228138851986274,
    2.200985160091639,
    2.1788128296672284,
    2.1603686564627913,
    2.144786687917804,
    2.131449545559776,
    2.1199052992212546,
)

Values = NDArray[np.float64]
Used = Sequence[float | None]  # in each window of an arm


@dataclass(frozen=True)
class PairRatio:
    """An arm against a baseline: `ratio` is arm time / baseline time.

    Where their steps do different numbers of items, both are times per item, and `per_item` says
    of what.
    """

    ratio: Estimate
    cycles: Estimate | None
    log_sd: float | None
    blocks: int
    clocks_differ: bool
    per_item: str = ""

    @cached_property
    def speedup(self) -> Estimate:
        """Baseline time / arm time: more than 1 is faster."""
        return self.ratio.inverse()


def step_times(arm: Arm) -> Values:
    """Seconds of one step, for each window, on the clock that judges the arm."""
    return np.asarray(arm.window_s, dtype=np.float64) / arm.steps_per_window


def step_cycles(arm: Arm) -> Values | None:
    """SM clock cycles of one step, for each window; None without a clock for every window."""
    clock = np.asarray(arm.windows.sm_clock_hz, dtype=np.float64)
    if arm.clock != "device" or clock.size != len(arm.window_s) or not (clock > 0).all():
        return None
    return step_times(arm) * clock


def block_values(
    blocks: Sequence[Sequence[int]], arm: int, baseline: int, values: dict[int, Values]
) -> Values:
    """Per block: mean log value of the arm minus that of the baseline.

    `values` holds the windows of both arms in the order of their turns. Blocks that lack one of
    the two arms give no value.
    """
    turns = [tuple(block.count(index) for block in blocks) for index in (arm, baseline)]
    return _differences([values[arm], values[baseline]], turns)


def _differences(values: Sequence[Values], turns: Sequence[Sequence[int]]) -> Values:
    """The same for the values of two, which had so many turns in each block."""
    counts = np.asarray(turns, dtype=np.intp)
    both = (counts > 0).all(axis=0)
    first, second = map(_block_means, values, counts)
    return first[both] - second[both]


def _block_means(values: Values, turns: NDArray[np.intp]) -> Values:
    """Per block: mean log value of the arm, or 0 without a turn."""
    block_of = np.repeat(np.arange(turns.size), turns)
    sums = np.bincount(block_of, weights=np.log(values), minlength=turns.size)
    return sums / np.maximum(turns, 1)


def over_launches(launch_logs: Sequence[float], within_one: Values) -> Estimate:
    """The estimate from one log value per launch; `within_one` serves when there is one launch."""
    count = len(launch_logs)
    if count == 1:
        return _median_of_one_launch(launch_logs[0], within_one)
    mean, spread = _mean_and_sd(launch_logs)
    half = _t_quantile(count) * spread / math.sqrt(count)
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)


def middle(values: Sequence[float]) -> float:
    """The median of positive values; of an even number the geometric mean of the two in it."""
    low, high = median_low(values), median_high(values)
    return low if low == high else math.sqrt(low) * math.sqrt(high)


@dataclass(frozen=True)
class RunSpread:
    """Half of two 95 % intervals around the median over runs, on the log scale."""

    of_median: float  # for the model
    of_new_run: float  # for one more run, of a card like these


def run_spread(cards: Sequence[Sequence[float]]) -> RunSpread:
    """From the log values of the runs of each card: three runs or more in all.

    Cards are the sample, each with the mean of its runs, where there are three of them; else runs.
    One more run varies by what cards do, or by what runs do where that is more.
    """
    runs = [log for found in cards for log in found]
    units = [fmean(found) for found in cards] if len(cards) >= ENOUGH_CARDS else runs
    sd, sd_of_runs = _mean_and_sd(units)[1], _mean_and_sd(runs)[1]
    of_median = OF_MEDIAN / len(units)
    quantile = _t_quantile(len(units))
    return RunSpread(
        quantile * sd * math.sqrt(of_median),
        quantile * max(sd, sd_of_runs) * math.sqrt(1 + of_median),
    )


def _mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    """As numpy's `mean` and `std` with ddof=1, whose cost is another twenty microseconds."""
    every = np.asarray(values)
    mean = np.add.reduce(every) / every.size
    deviations = every - mean
    return float(mean), math.sqrt(np.add.reduce(deviations * deviations) / (every.size - 1))


@cache
def _t_quantile(count: int) -> float:
    if count - 2 < len(T_975):
        return T_975[count - 2]
    # scipy.stats.t.ppf is this function; to import the package takes half a second more.
    return float(scipy.special.stdtrit(count - 1, 0.5 + CONFIDENCE / 2))


def pair_ratio(records: Sequence[Record], arm: str, baseline: str) -> PairRatio | None:
    """Arm against baseline over the launches in which both were measured; None without any."""
    launches = [both for record in records if (both := _together(record, arm, baseline))]
    if not launches:
        return None
    sides = [_side(launches, side, lambda one: one.window_s) for side in (0, 1)]
    times = _block_values(launches, [one.over_items(one.of_step) for one in sides])
    logs = [median(values.tolist()) for values in times]
    cycles = _cycles(launches, sides)
    return PairRatio(
        ratio=over_launches(logs, times[0]),
        cycles=over_launches([median(v.tolist()) for v in cycles], cycles[0]) if cycles else None,
        log_sd=_mean_and_sd(logs)[1] if len(logs) > 1 else None,
        blocks=sum(one.blocks for one in launches),
        clocks_differ=any(one.arms[0].clock != one.arms[1].clock for one in launches),
        per_item=next((one.item for one in launches if one.item), ""),
    )


def overbooked(record: Record, arm: Arm) -> bool:
    """Whether a window has more CPU seconds than all cores could have given it, but for a tick of
    their clock: what came before it was booked in it."""
    cores = record.context.host.cores or math.inf
    both = zip(arm.windows.cpu_s, arm.windows.host_s, strict=False)
    return any(used > cores * lasted + CPU_TICK_S for used, lasted in both)


def beside_idle_gpus(record: Record, arm: Arm) -> bool:
    """Whether its case had more GPUs than the arm has ranks: joules are of all of them below schema
    1.10."""
    return record.minor < TELLS_ALL and len(record.context.gpus) > arm.ranks


def cpu_ratio(records: Sequence[Record], arm: str, baseline: str) -> Estimate | None:
    """CPU seconds of a step of the arm over those of the baseline; per item as `pair_ratio`.

    None where device events judge either: what the host does meanwhile is mostly to wait.
    """
    if _any_is(overbooked, records, arm, baseline):
        return None
    return _used_ratio(
        records, arm, baseline, lambda one: one.windows.cpu_s if one.clock == "host" else ()
    )


def energy_ratio(records: Sequence[Record], arm: str, baseline: str) -> Estimate | None:
    """Joules of a step of the arm over those of the baseline; per item as `pair_ratio`."""
    if _any_is(beside_idle_gpus, records, arm, baseline):
        return None
    return _used_ratio(records, arm, baseline, lambda one: one.windows.energy_j)


def _any_is(wrong: Callable[[Record, Arm], bool], records: Sequence[Record], *names: str) -> bool:
    return any(
        wrong(record, arm)
        for record in records
        for name in names
        for arm in measured_arms([record], name)
    )


def _used_ratio(
    records: Sequence[Record], arm: str, baseline: str, used: Callable[[Arm], Used]
) -> Estimate | None:
    """None unless every window of both tells it, and none of them used nothing."""
    if not any(used(one) for one in measured_arms(records, arm)):
        return None  # as most records, for which the rest would be in vain
    launches = [both for record in records if (both := _together(record, arm, baseline))]
    every = [one for both in launches for one in both.arms]
    if not launches or not all(_used_in_all(one, used(one)) for one in every):
        return None
    sides = [_side(launches, side, used) for side in (0, 1)]
    values = _block_values(launches, [one.over_items(one.of_step) for one in sides])
    return over_launches([median(one.tolist()) for one in values], values[0])


def _used_in_all(arm: Arm, used: Used) -> bool:
    return len(used) == len(arm.window_s) and all(used)


def step_time(records: Sequence[Record], arm: str) -> Estimate | None:
    """Seconds of one step: the median window of each launch, then over launches."""
    launches = measured_arms(records, arm)
    return time_over(launches) if launches else None


def time_over(launches: Sequence[Arm]) -> Estimate:
    """The same for the launches of one arm, of which there is one at least."""
    logs = [float(np.log(one.step_quartiles_s[1])) for one in launches]
    return over_launches(logs, np.log(step_times(launches[0])))


def spread(launches: Sequence[Arm]) -> float:
    """Interquartile range of an arm's windows over their median; the median over launches."""
    quartiles = [one.step_quartiles_s for one in launches]
    return median((high - low) / middle for low, middle, high in quartiles)


def rate(time_s: Estimate, work: float) -> Estimate:
    """Work per second, for a step that does `work`."""
    return time_s.inverse().scaled(work)


def rate_over(launches: Sequence[Arm], work: Callable[[Cost], float]) -> Estimate | None:
    """Work per second of an arm, each launch by what its own steps do; None where one does not tell
    it."""
    amounts = [work(one.cost) if one.cost else 0.0 for one in launches]
    if not all(amount > 0 for amount in amounts):
        return None
    if len({*amounts}) == 1:
        return rate(time_over(launches), amounts[0])
    logs = [
        math.log(one.step_quartiles_s[1] / amount)
        for one, amount in zip(launches, amounts, strict=True)
    ]
    return over_launches(logs, np.log(step_times(launches[0]) / amounts[0])).inverse()


def items(cost: Cost) -> float:
    """Of a step: images, tokens and such."""
    return cost.items


def work_for_roof(cost: Cost) -> float:
    """What of a step counts towards its roof: operations under a GEMM roof, bytes otherwise."""
    return cost.flops if counts_operations(cost.roof) else cost.bytes


def counts_operations(roof: str) -> bool:
    """Whether the roof is one of products, in FLOP/s; all others are in B/s."""
    return registers.unit(roof) == "FLOP/s"


def median_over(values: Sequence[float]) -> float | None:
    """The median, or None of nothing."""
    return float(median(values)) if len(values) else None


def measured_arms(records: Sequence[Record], name: str) -> list[Arm]:
    """The arm of that name in each record where it has windows to judge."""
    arms = (record.arm(name) for record in records)
    return [arm for arm in arms if arm is not None and _measured(arm)]


def _measured(arm: Arm) -> bool:
    return arm.outcome == "ok" and len(arm.window_s) > 0


@dataclass(frozen=True)
class _Together:
    """Two arms of one launch, and how many windows each had in each block."""

    arms: tuple[Arm, Arm]
    turns: tuple[tuple[int, ...], tuple[int, ...]]
    blocks: int  # in which both had a turn
    items: tuple[float, float] = (1.0, 1.0)  # of a step of each, where they differ
    item: str = ""


def _together(record: Record, arm: str, baseline: str) -> _Together | None:
    """None where the two were not measured in one block."""
    first, second = _index(record, arm), _index(record, baseline)
    if record.order is None or first is None or second is None:
        return None
    turns = record.order.turns
    if first not in turns or second not in turns:
        return None
    blocks = sum(map(bool, map(mul, turns[first], turns[second])))
    if not blocks:
        return None
    arms = (record.arms[first], record.arms[second])
    of_both = (turns[first], turns[second])
    costs = [one.cost for one in arms if one.cost is not None and one.cost.items > 0]
    if len(costs) < 2 or costs[0].items == costs[1].items:
        return _Together(arms, of_both, blocks)
    items = (costs[0].items, costs[1].items)
    return _Together(arms, of_both, blocks, items, costs[0].item or "item")


def _index(record: Record, name: str) -> int | None:
    """The place of a measured arm; None where it was not measured."""
    for index, one in enumerate(record.arms):
        if one.name == name:
            return index if _measured(one) else None
    return None


@dataclass(frozen=True)
class _Side:
    """One of the two arms in all launches: its windows, launch after launch."""

    arms: Sequence[Arm]
    counts: Sequence[int]  # of windows in each launch
    items: Sequence[float]  # of a step in each launch, 1 where they do not differ
    of_step: Values  # seconds, or what else is compared

    def over_items(self, values: Values) -> Values:
        """What is of a step, of an item."""
        if any(one != 1 for one in self.items):
            values = values / np.repeat(self.items, self.counts)
        return values

    def clocks_hz(self) -> Values | None:
        """As `step_cycles` says: None without a clock for every window."""
        if not all(map(_has_clocks, self.arms)):
            return None
        clocks = _joined([arm.windows.sm_clock_hz for arm in self.arms], self.counts)
        return clocks if (clocks > 0).all() else None


def _side(launches: Sequence[_Together], side: int, of: Callable[[Arm], Used]) -> _Side:
    arms = [one.arms[side] for one in launches]
    counts = [sum(one.turns[side]) for one in launches]
    windows = _joined([of(arm) for arm in arms], counts)
    of_step = windows / np.repeat([arm.steps_per_window for arm in arms], counts)
    return _Side(arms, counts, [one.items[side] for one in launches], of_step)


def _joined(values: Sequence[Used], counts: Sequence[int]) -> Values:
    """The first so many of each."""
    both = zip(values, counts, strict=True)
    return np.concatenate([np.asarray(one[:count], dtype=np.float64) for one, count in both])


def _has_clocks(arm: Arm) -> bool:
    return arm.clock == "device" and len(arm.windows.sm_clock_hz) == len(arm.window_s)


def _cycles(launches: Sequence[_Together], sides: Sequence[_Side]) -> list[Values] | None:
    """Block values in cycles; None where any arm lacks a clock."""
    values = []
    for one in sides:
        clocks = one.clocks_hz()
        if clocks is None:
            return None
        values.append(one.over_items(one.of_step * clocks))
    return _block_values(launches, values)


def _block_values(launches: Sequence[_Together], values: Sequence[Values]) -> list[Values]:
    """Block values of each launch, all computed together, from those of both sides' windows."""
    turns = [[count for one in launches for count in one.turns[side]] for side in (0, 1)]
    differences = _differences(values, turns)
    ends = [*accumulate(one.blocks for one in launches)]
    return [differences[start:end] for start, end in pairwise([0, *ends])]


def _median_of_one_launch(log_value: float, values: Values) -> Estimate:
    """The order statistics k and n + 1 - k hold the median with probability 1 - 2 P(B < k)."""
    order = _order(values.size)
    if order == 0:  # fewer than seven values: not even the extremes reach the confidence
        return Estimate(math.exp(log_value), None, None, 1, ONE_LAUNCH_CONFIDENCE)
    ordered = np.sort(values)
    low, high = float(ordered[order - 1]), float(ordered[-order])
    return Estimate(math.exp(log_value), math.exp(low), math.exp(high), 1, ONE_LAUNCH_CONFIDENCE)


@cache
def _order(count: int) -> int:
    # scipy.stats.binom.ppf is this; to import the package takes half a second more.
    chances = scipy.special.bdtr(np.arange(count + 1.0), count, 0.5)
    return int(np.searchsorted(chances, (1 - ONE_LAUNCH_CONFIDENCE) / 2))


def upper_bound(hits: int, trials: int) -> float:
    """The share is below this with 95 % confidence (Clopper and Pearson); 1 without a trial."""
    if not trials:
        return 1.0
    test = scipy.stats.binomtest(hits, trials, alternative="less")
    return float(test.proportion_ci(CONFIDENCE).high)
