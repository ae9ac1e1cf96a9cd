"""How far apart values lie, and from where on one stands out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from gpulift.analysis.machine.results import FAR, LEAST_DEVIATION
from gpulift.analysis.machine.spread import FLOOR, MANY, WRONG, limits, spread_of


@pytest.mark.parametrize("count", [3, 4, 8, 12])
def test_the_deviation_of_few_normal_values_is_right_on_average(count: int) -> None:
    random = np.random.default_rng(1)
    scales = [spread_of(random.standard_normal(count)).below for _ in range(4000)]
    assert np.mean(scales) == pytest.approx(1, abs=0.03)


def test_values_that_are_all_but_equal_have_a_floor() -> None:
    spread = spread_of(np.array([0.0, 0.0, 0.0, -0.01]))
    assert spread.distances(np.array([-0.01, 0.01])) == pytest.approx([-4, 4])
    assert spread.below == spread.above == FLOOR


def test_a_slow_tenth_does_not_hide_that_the_rest_agrees() -> None:
    logs = np.linspace(-0.005, 0.005, 100)
    logs[:9] = -0.2
    assert spread_of(logs).below < 0.01


def test_long_tails_of_many_widen_their_own_side_only() -> None:
    logs = np.linspace(-0.005, 0.005, 100)
    logs[:20] = np.linspace(-0.2, -0.005, 20)
    spread = spread_of(logs)
    assert spread.below > 10 * spread.above
    assert spread_of(logs, tails=False).below == spread.above, "pairs of one slow card"


def test_few_are_as_far_as_ever_and_many_by_the_size_of_the_family() -> None:
    assert limits(MANY - 1, 10**6, None).far == FAR
    small, large = limits(MANY, 200, None).far, limits(MANY, 20_000, None).far
    assert FAR < small < large
    assert 2 * 200 * scipy.stats.t.sf(small, 12) == pytest.approx(WRONG)


def test_a_tolerance_holds_for_few() -> None:
    assert limits(3, 30, 0.05).least == 0.05
    assert limits(3, 30, None).least == limits(3, 30, 0.001).least == LEAST_DEVIATION
    assert limits(MANY, 30, 0.05).least == LEAST_DEVIATION
