"""Statistics on simulated clocks with known truth, at fixed seeds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats as scipy_stats

from gpulift.ground.estimate import Estimate
from gpulift.records.model import Cost, Record
from gpulift.records.parse import read_record
from gpulift.verdicts import stats
from tests.sample import arm, launches, record, skipped_arm, visited

CASE = {"bytes": 4096}


def read(*arms: dict[str, object], count: int = 3, **how: object) -> list[Record]:
    """Records of an A/B case with the given arms."""
    made = launches(count, "transfer/pinned_copy", CASE, arms, **how)
    return [read_record(one) for one in made]


def ratio_of(records: list[Record]) -> stats.PairRatio:
    pair = stats.pair_ratio(records, "b", "a")
    assert pair is not None
    return pair


def test_steps_of_different_numbers_of_items_are_held_against_each_other_per_item() -> None:
    batch = {"cost": {"items": 8.0, "item": "image"}}
    larger = {"cost": {"items": 32.0, "item": "image"}}
    alike = ratio_of(read(arm("a", 1e-3, **batch), arm("b", 2e-3, **batch)))
    pair = ratio_of(read(arm("a", 1e-3, **batch), arm("b", 2e-3, **larger)))
    assert pair.ratio.value == pytest.approx(alike.ratio.value / 4)
    assert pair.cycles is not None
    assert alike.cycles is not None
    assert pair.cycles.value == pytest.approx(alike.cycles.value / 4)
    assert (pair.per_item, alike.per_item) == ("image", "")
    unknown = ratio_of(read(arm("a", 1e-3, cost={"items": 0.0}), arm("b", 2e-3, **larger)))
    assert (unknown.ratio, unknown.per_item) == (alike.ratio, "")


def test_block_values_by_hand() -> None:
    values = {0: np.array([1.0, 4.0, 2.0, 2.0]), 1: np.array([2.0, 8.0, 2.0, 2.0])}
    made = stats.block_values([[0, 1, 1, 0], [1, 0, 0, 1]], 1, 0, values)
    assert made == pytest.approx([math.log(4) - math.log(2), 0.0])


def test_blocks_without_one_of_the_two_give_no_value() -> None:
    values = {0: np.array([1.0, 1.0]), 2: np.array([2.0])}
    assert stats.block_values([[0, 1], [0, 2]], 2, 0, values) == pytest.approx([math.log(2)])


def test_the_ratio_is_the_mean_of_what_each_launch_gives_alone() -> None:
    """Launches of different lengths, of which one has no block with both arms."""
    records = [
        *read(arm("a", 1e-3), arm("b", 2e-3), count=2),
        *read(arm("a", 1e-3), arm("b", 2e-3), count=1, blocks=5, seed=2),
        *read(arm("b", 2e-3), arm("a", 1e-3), count=1, blocks=7, seed=3),
    ]
    apart = record("transfer/pinned_copy", CASE, [arm("a", 1e-3), arm("b", 2e-3)], blocks=2)
    apart["order"]["blocks"] = [[0] * 4, [1] * 4]
    medians = []
    for one in records:
        assert one.order is not None
        names = [measured.name for measured in one.arms]
        values = {index: stats.step_times(measured) for index, measured in enumerate(one.arms)}
        turns = (names.index("b"), names.index("a"))
        medians.append(np.median(stats.block_values(one.order.blocks, *turns, values)))
    pair = ratio_of([records[0], read_record(apart), *records[1:]])
    assert pair.ratio.value == float(np.exp(np.mean(medians)))
    assert (pair.ratio.launches, pair.blocks) == (4, 8 + 8 + 5 + 7)
    assert pair.cycles is not None
    assert pair.cycles.launches == 4
    assert stats.pair_ratio([read_record(apart)], "b", "a") is None


@pytest.mark.parametrize("count", [2, 3, 5, 10, 30, 1000])
def test_the_interval_is_student_s(count: int) -> None:
    logs = [0.01 * (number % 3) for number in range(count)]
    made = stats.over_launches(logs, np.array([]))
    half = scipy_stats.t.ppf(0.975, count - 1) * np.std(logs, ddof=1) / math.sqrt(count)
    assert made.high == math.exp(float(np.mean(logs)) + float(half))


def test_exact_clocks_give_the_exact_ratio() -> None:
    exact = {"noise": 0.0, "launch_noise": 0.0}
    pair = ratio_of(read(arm("a", 2e-3, **exact), arm("b", 1e-3, **exact)))
    assert pair.ratio.value == pytest.approx(0.5)
    assert pair.speedup.value == pytest.approx(2)
    assert pair.log_sd == pytest.approx(0, abs=1e-12)
    assert pair.blocks == 24


def test_linear_drift_cancels_in_palindromes() -> None:
    exact = {"noise": 0.0, "launch_noise": 0.0}
    records = read(arm("a", 1e-3, **exact), arm("b", 1e-3, **exact), drift=lambda i: 0.01 * i)
    assert ratio_of(records).ratio.value == pytest.approx(1, rel=1e-12)
    times = [stats.step_times(one) for one in stats.measured_arms(records, "a")]
    assert times[0].max() / times[0].min() > 1.3, "the drift itself must be large"


def test_one_bad_block_in_a_launch_does_not_move_the_median() -> None:
    """A second mode, 20 % slower, in a quarter of the windows of a launch."""
    exact = {"noise": 0.0, "launch_noise": 0.0}
    records = read(
        arm("a", 1e-3, **exact),
        arm("b", 1e-3, **exact),
        drift=lambda i: 0.2 if i % 32 in (1, 5) else 0.0,
    )
    assert ratio_of(records).ratio.value == pytest.approx(1)


def test_interval_is_students_t_over_launches() -> None:
    logs = [0.10, 0.12, 0.17]
    made = stats.over_launches(logs, np.array([]))
    low, high = scipy_stats.t.interval(0.95, 2, loc=np.mean(logs), scale=scipy_stats.sem(logs))
    assert made.value == pytest.approx(math.exp(float(np.mean(logs))))
    assert (made.low, made.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert not made.one_launch


def coverage(count: int, truth: float, draw: Callable[[], float]) -> float:
    """Share of 2000 intervals over `count` launches that hold the truth."""
    hits = 0
    for _ in range(2000):
        made = stats.over_launches([draw() for _ in range(count)], np.array([]))
        assert made.low is not None
        assert made.high is not None
        hits += made.low <= math.exp(truth) <= made.high
    return hits / 2000


@pytest.mark.parametrize("count", [3, 5])
def test_coverage_with_normal_noise_is_nominal(count: int) -> None:
    random = np.random.default_rng(20261121)
    assert coverage(count, 0.3, lambda: random.normal(0.3, 0.01)) == pytest.approx(0.95, abs=0.015)


def test_coverage_with_heavy_tails_is_at_least_nominal() -> None:
    random = np.random.default_rng(20261121)
    assert coverage(5, 0.0, lambda: 0.01 * random.standard_t(3)) >= 0.95


def test_coverage_with_two_modes_falls_short_by_little() -> None:
    """Every third launch is 1.5 % slower: the mean is of a mixture, which t does not know."""
    random = np.random.default_rng(20261121)
    held = coverage(5, 0.0045, lambda: random.normal(0, 0.003) + 0.015 * (random.random() < 0.3))
    assert held >= 0.85


def test_coverage_of_the_one_launch_interval() -> None:
    """Of the median of skewed block values: at least the nominal 97.5 %."""
    random = np.random.default_rng(7)
    trials, hits = 2000, 0
    for _ in range(trials):
        values = random.exponential(1.0, 12)
        made = stats.over_launches([float(np.median(values))], values)
        assert made.low is not None
        assert made.high is not None
        hits += made.low <= math.exp(math.log(2)) <= made.high
    assert hits / trials >= 0.97


def test_one_launch_is_marked_and_few_blocks_have_no_interval() -> None:
    (one,) = read(arm("a", 2e-3), arm("b", 1e-3), count=1)
    made = ratio_of([one]).ratio
    assert made.one_launch
    assert made.confidence == stats.ONE_LAUNCH_CONFIDENCE
    assert made.low is not None
    (short,) = read(arm("a", 2e-3), arm("b", 1e-3), count=1, blocks=6)
    assert ratio_of([short]).ratio.low is None
    assert ratio_of([short]).ratio.half_width is None


def test_a_clock_change_shows_in_time_but_not_in_cycles() -> None:
    raw = launches(3, "transfer/pinned_copy", CASE, [arm("a", 1e-3), arm("b", 1.1e-3)])
    for one in raw:
        windows = one["arms"][1]["windows"]
        windows["sm_clock_hz"] = [1.98e9 / 1.1 for _ in windows["device_s"]]
    pair = ratio_of([read_record(one) for one in raw])
    assert pair.ratio.value == pytest.approx(1.1, rel=0.005)
    assert pair.cycles is not None
    assert pair.cycles.value == pytest.approx(1.0, rel=0.005)


def test_no_cycles_without_a_clock_for_every_window() -> None:
    (one,) = launches(1, "transfer/pinned_copy", CASE, [arm("a", 1e-3), arm("b", 1e-3)])
    del one["arms"][0]["windows"]["sm_clock_hz"]
    assert ratio_of([read_record(one)]).cycles is None


def test_arms_on_two_clocks_are_marked() -> None:
    records = read(arm("a", 1e-3, clock="host"), arm("b", 1e-3))
    assert ratio_of(records).clocks_differ
    assert ratio_of(records).cycles is None


def test_skipped_arms_and_unknown_names_have_no_ratio() -> None:
    records = read(arm("a", 1e-3), skipped_arm("b", "no FP8"), arm("c", 1e-3))
    assert stats.pair_ratio(records, "b", "a") is None
    assert stats.pair_ratio(records, "zzz", "a") is None
    assert stats.pair_ratio(records, "c", "a") is not None
    assert stats.step_time(records, "b") is None


def test_step_time_is_the_median_window_over_its_steps() -> None:
    exact = {"noise": 0.0, "launch_noise": 0.0}
    records = read(arm("a", 1e-3, **exact), arm("b", 1e-3, **exact), drift=lambda i: 1.0 * (i == 0))
    made = stats.step_time(records, "a")
    assert made is not None
    assert made.value == pytest.approx(1e-3)


def test_spread_is_the_interquartile_range_over_the_median() -> None:
    raw = record("transfer/pinned_copy", CASE, [arm("a", 1.0), arm("b", 1.0)], blocks=2)
    raw["arms"][0]["windows"]["device_s"] = [10.0, 20.0, 30.0, 40.0]
    assert stats.spread([read_record(raw).arms[0]]) == pytest.approx((32.5 - 17.5) / 25)


def test_rate_turns_the_interval_around() -> None:
    made = stats.rate(Estimate(2.0, 1.0, 4.0, 3), 8.0)
    assert (made.value, made.low, made.high) == (4.0, 2.0, 8.0)


def test_gemm_roofs_count_operations_and_others_bytes() -> None:
    assert stats.work_for_roof(Cost(bytes=3.0, flops=5.0, roof="gemm/bf16")) == 5.0
    assert stats.work_for_roof(Cost(bytes=3.0, flops=5.0, roof="host_gemm/fp32")) == 5.0
    assert stats.work_for_roof(Cost(bytes=3.0, flops=5.0, roof="device_memory")) == 3.0


def test_a_planted_half_percent_is_read_within_a_tenth_of_a_point() -> None:
    quiet = {"noise": 3e-4, "launch_noise": 2e-4}
    records = read(arm("a", 1e-3, **quiet), arm("b", 1.005e-3, **quiet), count=20)
    pair = ratio_of(records)
    assert pair.ratio.value == pytest.approx(1.005, abs=0.001)
    assert pair.log_sd == pytest.approx(math.sqrt(2) * 2e-4, rel=0.5)


def test_known_quantiles_are_those_of_scipy() -> None:
    degrees = range(1, len(stats.T_975) + 1)
    assert list(stats.T_975) == pytest.approx(scipy_stats.t.ppf(0.975, degrees), rel=1e-13)
    last = len(degrees) + 1  # launches
    assert stats._t_quantile(last) == stats.T_975[-1]
    assert stats._t_quantile(last + 1) == pytest.approx(scipy_stats.t.ppf(0.975, last))


# --- CPU seconds and joules ---


def on_host(*cores: float) -> list[Record]:
    """An arm a that keeps so many cores busy, and b in half of its time."""
    arms = [
        arm(name, seconds, clock="host", cpu_cores=busy)
        for name, seconds, busy in zip("ab", (2e-3, 1e-3), cores, strict=True)
    ]
    return read(*arms)


def test_cpu_seconds_are_compared_as_times_are() -> None:
    records = on_host(1.0, 3.0)
    found, time = stats.cpu_ratio(records, "b", "a"), ratio_of(records).ratio
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.value == pytest.approx(3 * time.value)
    assert (found.low, found.high) == pytest.approx((3 * (time.low or 0), 3 * (time.high or 0)))
    assert found.launches == 3


def test_more_cpu_seconds_than_all_cores_could_take_have_no_ratio() -> None:
    arms = [arm(name, 1e-3, clock="host", cpu_cores=1.0) for name in ("a", "b")]
    made = launches(3, "a/b", CASE, arms)
    window = made[-1]["arms"][0]["windows"]
    cores = made[-1]["context"]["host"]["cores"]
    window["cpu_s"][3] = cores * window["host_s"][3] + 0.009  # a tick of the clock
    assert stats.cpu_ratio([read_record(one) for one in made], "b", "a") is not None
    window["cpu_s"][3] += 0.002
    assert stats.cpu_ratio([read_record(one) for one in made], "b", "a") is None


def test_cpu_seconds_are_per_item_where_steps_differ_in_items() -> None:
    made = [
        arm("a", 1e-3, clock="host", cpu_cores=1.0, cost={"items": 8.0}, noise=0, launch_noise=0),
        arm("b", 1e-3, clock="host", cpu_cores=1.0, cost={"items": 32.0}, noise=0, launch_noise=0),
    ]
    found = stats.cpu_ratio(read(*made), "b", "a")
    assert found is not None
    assert found.value == pytest.approx(1 / 4)


@pytest.mark.parametrize("broken", ["none", "zero", "device"])
def test_cpu_seconds_have_no_ratio_where_a_window_tells_none_or_a_gpu_sets_the_pace(
    broken: str,
) -> None:
    made = launches(3, "a/b", CASE, [arm(n, 1e-3, clock="host", cpu_cores=1.0) for n in ("a", "b")])
    last = made[-1]["arms"][0]
    if broken == "none":
        del last["windows"]["cpu_s"]
    elif broken == "zero":
        last["windows"]["cpu_s"][3] = 0.0
    else:
        last["clock"] = "device"
    assert stats.cpu_ratio([read_record(one) for one in made], "b", "a") is None
    assert stats.cpu_ratio([read_record(one) for one in made[:-1]], "b", "a") is not None


def test_joules_are_compared_where_every_window_has_them() -> None:
    made = launches(3, "a/b", CASE, [arm("a", 2e-3, power_w=500.0), arm("b", 1e-3, power_w=250.0)])
    found = stats.energy_ratio([read_record(one) for one in made], "b", "a")
    assert found is not None
    assert found.value == pytest.approx(1 / 4, rel=0.01)
    made[1]["arms"][0]["windows"]["energy_j"][5] = None
    assert stats.energy_ratio([read_record(one) for one in made], "b", "a") is None
    assert stats.energy_ratio([], "b", "a") is None


@pytest.mark.parametrize("count", [0, 1, 6, 7, 50, 1001, 100_000])
def test_the_order_statistic_is_that_of_scipy_s_binomial(count: int) -> None:
    chance = (1 - stats.ONE_LAUNCH_CONFIDENCE) / 2
    assert stats._order(count) == scipy_stats.binom.ppf(chance, count, 0.5)


def test_each_launch_counts_by_its_own_items() -> None:
    def of(items: float, seconds: float, launch: int) -> Record:
        quiet = {"noise": 0, "launch_noise": 0, "cost": {"items": items, "item": "token"}}
        return read_record(record("a/b", {"n": 1}, [arm("x", seconds, **quiet)], launch))

    alike = stats.measured_arms([of(100.0, 1.0, 0), of(100.0, 1.0, 1)], "x")
    apart = stats.measured_arms([of(100.0, 1.0, 0), of(400.0, 4.0, 1)], "x")
    for launches_of_both in (alike, apart):
        found = stats.rate_over(launches_of_both, stats.items)
        assert found is not None
        assert found.value == pytest.approx(100.0)
        assert found.launches == 2
    assert stats.rate_over(apart, lambda cost: cost.bytes) is None


@pytest.mark.parametrize("blocks", [1, 4, 5])
def test_linear_drift_cancels_over_two_mirrored_visits(blocks: int) -> None:
    records = [read_record(visited({"n": 1}, (1.0, 1.2, 0.7), 0.01, blocks))]
    for name, ratio in (("arm_1", 1.2), ("arm_2", 0.7)):
        pair = stats.pair_ratio(records, name, "arm_0")
        assert pair is not None
        assert pair.ratio.value == pytest.approx(ratio, rel=1e-12)
