"""Which of cards, pairs or nodes are outliers, and from where on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats

from gpulift.analysis.machine.outliers import (
    FAR,
    FLOOR,
    LEAST_DEVIATION,
    MANY,
    WRONG,
    Family,
    family_of,
    limits,
    spread_of,
)
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, Rate

MEMORY, PRODUCT = "roof/device_memory/burst", "roof/gemm/bf16/burst"
SOUND = 4e12
OWN = 0.0005  # of an interval, on either side


def rate(name: str, of_sound: float = 1.0, check: str = MEMORY, **other: Any) -> Rate:
    value = SOUND * of_sound
    ends = {"low": value / (1 + OWN), "high": value * (1 + OWN)}
    return Rate(name, check, value, **{**ends, **other})


def rates(count: int, spread: float = 0.0005, **other: Any) -> list[Rate]:
    return [rate(f"n{i}", 1 + spread * (i % 7 - 3), **other) for i in range(count)]


def named(*every: Rate) -> list[str]:
    return [one.rate.name for one in family_of(every).positions if one.named]


OTHERS = [rate(f"n{i}", check=f"roof/{j}") for i in range(50) for j in range(100)]
EQUAL = [rate(name) for name in "ab"]
NONE: dict[str, Any] = {"low": None, "high": None}


@pytest.mark.parametrize(
    ("others", "apart", "outlier"),
    [
        (rates(100), rate("x", 0.97), True),
        (rates(100), rate("x", 1.05), False),  # a fast one wants nothing done
        (rates(100), rate("x", 0.9, **NONE), False),  # of one launch
        (rates(100), rate("x", 0.9, high=1.02 * SOUND), False),  # it holds the median
        (rates(100, spread=0.005), rate("x", 0.97), False),  # sound ones lie apart
        (rates(25), rate("x", 0.979), True),
        ([*rates(25), *OTHERS], rate("x", 0.979), False),  # a larger family asks for more
        (rates(4, tolerance=0.05), rate("x", 0.9625), False),  # by so much sound cards differ
        (rates(4, tolerance=0.05), rate("x", 0.925), True),
        (rates(30, tolerance=0.05), rate("x", 0.9625), True),  # many tell it themselves
        (EQUAL, rate("x", 0.9925), False),  # three deviations are not four
        (EQUAL, rate("x", 0.9890), True),
        (EQUAL, rate("x", 0.9901), False),  # far, but its interval is within a percent
        (EQUAL, rate("x", 0.5, setting="together"), False),  # alone there
        (EQUAL[:1], rate("x", 0.5), False),
        (rates(4, unit="s"), rate("x", 1.2, unit="s"), True),
        (rates(4, unit="s"), rate("x", 0.8, unit="s"), False),
    ],
)
def test_an_outlier_is_far_below_with_its_whole_interval(
    others: Sequence[Rate], apart: Rate, outlier: bool
) -> None:
    assert named(*others, apart) == (["x"] if outlier else [])


@pytest.mark.parametrize(("of_sound", "verdict"), [(0.94, FAIL), (0.96, INCONCLUSIVE)])
def test_it_fails_where_it_is_worth_it(of_sound: float, verdict: str) -> None:
    *_, slow = family_of([*rates(5, spread=0.0), rate("x", of_sound)]).positions
    assert slow.verdict == verdict
    off = 100 * (1 - of_sound)
    assert slow.told("cards") == (
        f"-{off:.1f} % from the median of 6 cards, {-np.log(of_sound) / FLOOR:.1f} deviations"
    )


def test_models_and_checks_are_compared_with_their_own() -> None:
    alike = [("b", MEMORY, "B/s"), ("a", MEMORY, "B/s"), ("b", PRODUCT, "FLOP/s")]
    every = [rate(str(i), 1 + n, c, model=m, unit=u) for n, (m, c, u) in enumerate(alike)
             for i in range(3)]  # fmt: skip
    family = family_of([*every, rate("lone", 0.1, model="c")])
    assert not any(one.named for one in family.positions)
    assert [(one.model, one.check, one.unit, one.count) for one in family.groups] == [
        ("a", MEMORY, "B/s", 3),
        ("b", MEMORY, "B/s", 3),
        ("b", PRODUCT, "FLOP/s", 3),
    ]
    assert "lone" not in {one.rate.name for one in family.positions}
    assert family_of([]) == Family()


def test_a_group_says_from_where_on_one_is_named() -> None:
    (group,) = family_of(rates(100)).groups
    assert group.median == pytest.approx(SOUND)
    for factor, outliers in ((1.02, ["x"]), (0.98, [])):
        of_sound = 1 - group.smallest * factor
        exact: dict[str, Any] = dict.fromkeys(("low", "high"), SOUND * of_sound)
        assert named(*rates(99), rate("x", of_sound, **exact)) == outliers


@pytest.mark.parametrize("count", [3, 4, 8, 12])
def test_the_deviation_of_few_normal_values_is_right_on_average(count: int) -> None:
    random = np.random.default_rng(1)
    scales = [spread_of(random.standard_normal(count)).below for _ in range(4000)]
    assert np.mean(scales) == pytest.approx(1, abs=0.03)


def test_values_that_are_all_but_equal_have_a_floor() -> None:
    spread = spread_of(np.array([0.0, 0.0, 0.0, -0.01]))
    assert spread.distances(np.array([-0.01, 0.01])) == pytest.approx([-4, 4])
    assert spread.below == spread.above == FLOOR


def test_a_slow_tenth_hides_nothing_and_longer_tails_widen_their_own_side() -> None:
    logs = np.linspace(-0.005, 0.005, 100)
    logs[:9] = -0.2
    assert spread_of(logs).below < 0.01
    logs[:20] = np.linspace(-0.2, -0.005, 20)
    spread = spread_of(logs)
    assert spread.below > 10 * spread.above
    assert spread_of(logs, tails=False).below == spread.above, "pairs of one slow card"


def test_few_are_as_far_as_ever_and_many_by_the_size_of_the_family() -> None:
    assert limits(MANY - 1, 10**6, None).far == FAR
    small, large = limits(MANY, 200, None).far, limits(MANY, 20_000, None).far
    assert FAR < small < large
    assert 2 * 200 * scipy.stats.t.sf(small, 12) == pytest.approx(WRONG)
    leasts = [limits(*one).least for one in ((3, 9, 0.05), (3, 9, None), (MANY, 9, 0.05))]
    assert leasts == [0.05, LEAST_DEVIATION, LEAST_DEVIATION]
