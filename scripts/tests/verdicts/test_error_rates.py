"""The verdicts hold their error rates on clocks as noisy as the fitted ones, at fixed seeds.

Suites' false alarms and wrong equivalences are shown to be below their limit with 95 % confidence;
other rates are held unless an exact binomial test shows them to be broken. `tests.error_rates`
gives tighter bounds from many more suites.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpulift.verdicts import decision
from gpulift.verdicts.decision import DUET, GatePlan
from tests import error_rates
from tests.error_rates import HOST, MATMUL, SEED, Rate
from tests.simulated_clock import Clock, clocks, hostile

pytestmark = pytest.mark.world

MODELS, WORST = error_rates.fitted()
KINDS = tuple(clocks(MODELS[MATMUL], WORST))
MACHINES = {
    "GEMM": clocks(MODELS[MATMUL], WORST),
    "GEMM, 3 times worse": clocks(MODELS[MATMUL], WORST, 3),
    "host": clocks(MODELS[HOST], WORST),
    "host, 3 times worse": clocks(MODELS[HOST], WORST, 3),
}
NEIGHBOURS = {
    name: hostile(MODELS[case], WORST, factor)["neighbours as fitted"]
    for name, case, factor in (
        ("GEMM", MATMUL, 1),
        ("GEMM, 3 times worse", MATMUL, 3),
        ("host", HOST, 1),
        ("host, 3 times worse", HOST, 3),
    )
}
PLAN = GatePlan(40)
SUITE_ALARMS = 0.01
TRIED = 500  # suites: one with an alarm still shows the rate to be below 1 %
ROUGH = Clock(offset_sd=0.02, block_sd=0.0)  # where a wrong "equivalent" is likeliest


@pytest.mark.parametrize("cases", error_rates.SUITES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("machine", MACHINES)
def test_suite_false_alarms_are_at_most_1_percent(machine: str, kind: str, cases: int) -> None:
    rate = error_rates.suite_false_alarms(MACHINES[machine][kind], GatePlan(cases), TRIED)
    assert rate.upper < SUITE_ALARMS, str(rate)


@pytest.mark.parametrize("cases", error_rates.SUITES)
@pytest.mark.parametrize("machine", NEIGHBOURS)
def test_neighbours_as_alike_as_fitted_do_not_break_the_rate(machine: str, cases: int) -> None:
    rate = error_rates.suite_false_alarms(NEIGHBOURS[machine], GatePlan(cases), TRIED)
    assert not rate.above(SUITE_ALARMS), str(rate)


@pytest.mark.parametrize("launches", [3, 4, 8])
@pytest.mark.parametrize("machine", ["GEMM", "host"])
def test_neighbours_as_alike_as_fitted_cost_coverage(machine: str, launches: int) -> None:
    """A limit of any interval that takes launches for independent."""
    assert 0.9 <= error_rates.paired_coverage(NEIGHBOURS[machine], launches, 1500).share < 0.95


def test_launches_that_follow_one_another_break_the_rate() -> None:
    """A limit of any test on launches, and proof that the test above can fail."""
    clock = replace(hostile(MODELS[MATMUL], WORST)["slow wander"], wander=0.01)
    assert error_rates.suite_false_alarms(clock, PLAN, 100).above(SUITE_ALARMS)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_steady_bias_below_the_least_change_is_no_regression(machine: str) -> None:
    """Three times the largest bias that was fitted, and still below the least change."""
    biased = replace(MACHINES[machine]["white"], bias=0.0018)
    rate = error_rates.suite_false_alarms(biased, PLAN, 200)
    assert not rate.above(SUITE_ALARMS), str(rate)


def test_the_filter_loses_no_regression() -> None:
    random = np.random.default_rng(SEED)
    values = MACHINES["host"]["white"].values(random, 200, 36) + math.log1p(0.007)
    first, second = values[:, :4], values[:, 4:]
    verdicts = [
        decision.decide_gate(*stages, DUET, PLAN).verdict
        for stages in zip(first.tolist(), second.tolist(), strict=True)
    ]
    regressed = [row for row, one in enumerate(verdicts) if one == decision.REGRESSED]
    assert 20 < len(regressed) < 180
    assert error_rates.regressed_rows(first, second, PLAN) == regressed


@pytest.mark.parametrize("launches", [3, 4, 8])
@pytest.mark.parametrize("kind", ["white", "drift", "warm-up", "two modes", "placement"])
def test_coverage_of_paired_launches(kind: str, launches: int) -> None:
    rate = error_rates.paired_coverage(MACHINES["host"][kind], launches, 1500)
    assert 0.93 <= rate.share <= 0.97


@pytest.mark.parametrize("launches", [3, 4, 8])
@pytest.mark.parametrize("kind", ["white", "drift", "warm-up", "two modes"])
def test_coverage_of_two_runs(kind: str, launches: int) -> None:
    rate = error_rates.independent_coverage(MACHINES["host"][kind], launches, 3000)
    assert 0.93 <= rate.share <= 0.97


@pytest.mark.parametrize("measure", error_rates.COVERAGES)
def test_coverage_with_heavy_tails_is_too_high(
    measure: Callable[[Clock, int, int], Rate],
) -> None:
    assert measure(MACHINES["host"]["heavy tails"], 4, 1500).share > 0.955


@pytest.mark.parametrize("kind", KINDS)
def test_equivalence_at_the_margin_is_rarely_claimed(kind: str) -> None:
    rate = error_rates.wrongly_equivalent(MACHINES["host, 3 times worse"][kind], PLAN, 3000)
    assert rate.upper <= decision.EQUIVALENCE_ALPHA, str(rate)


def test_equivalence_at_the_margin_where_it_is_likeliest() -> None:
    rate = error_rates.wrongly_equivalent(ROUGH, PLAN, 3000)
    assert rate.upper <= decision.EQUIVALENCE_ALPHA, str(rate)
    assert rate.share > 0.02


@pytest.mark.parametrize(
    ("machine", "effect", "least"),
    [("GEMM", 0.005, 0.8), ("GEMM", 0.01, 0.98), ("host", 0.01, 0.88), ("host", 0.02, 0.98)],
)
def test_planted_changes_are_found(machine: str, effect: float, least: float) -> None:
    for kind, clock in MACHINES[machine].items():
        if kind != "heavy tails":
            made = error_rates.powers(clock, effect, PLAN, 60)
            assert made.regressed >= least, kind
            assert made.improved == 0


def test_heavy_tails_cost_power_not_validity() -> None:
    made = error_rates.powers(MACHINES["host"]["heavy tails"], 0.05, PLAN, 100)
    assert 0.7 <= made.regressed < 1
    assert made.launches < 20


def test_without_an_effect_launches_are_few() -> None:
    made = error_rates.powers(MACHINES["GEMM"]["white"], 0.0, PLAN, 100)
    assert made.equivalent > 0.95
    assert 4 <= made.launches < 9


@pytest.mark.parametrize("rows", error_rates.SUITES)
@pytest.mark.parametrize("kind", KINDS)
def test_family_of_two_runs_has_false_alarms_of_at_most_1_percent(kind: str, rows: int) -> None:
    clock = MACHINES["GEMM, 3 times worse"][kind]
    rate = error_rates.family_false_alarms(clock, rows, 200)
    assert not rate.above(decision.FAMILY_ALPHA), str(rate)


def test_what_runs_differ_by_is_taken_for_a_change() -> None:
    """The limit of two runs: launches cannot know what a whole run had in common."""
    clock = Clock(offset_sd=0.004, block_sd=0.0)
    made = error_rates.family_false_alarms(clock, 40, 100, between_runs=0.008)
    assert made.above(decision.FAMILY_ALPHA)


def test_windows_of_one_process_are_no_launches() -> None:
    """Those of two processes differ by more than chance although the code is the same."""
    assert error_rates.u_test_alarms(MODELS[MATMUL], 300).above(0.1)


@pytest.mark.parametrize(("hits", "above"), [(0, False), (3, False), (5, False), (15, True)])
def test_rate_is_shown_above_only_by_many_hits(hits: int, above: bool) -> None:
    assert Rate(hits, 300).above(0.01) is above


def test_upper_bound_of_no_hits_is_the_rule_of_three() -> None:
    """1 - 0.05 ** (1 / 299) is 1 %."""
    assert Rate(0, 299).upper == pytest.approx(0.01, rel=5e-3)
