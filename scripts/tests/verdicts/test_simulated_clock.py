"""The simulated clocks have the noise that they claim, and real statistics read it from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from gpulift.records.parse import read_record
from gpulift.verdicts import stats
from tests import noise
from tests.error_rates import MATMUL, fitted
from tests.sample import arm, launches
from tests.simulated_clock import Clock, Extremes, clocks, hostile

QUIET = Clock(offset_sd=0.0, block_sd=0.0)


def random() -> np.random.Generator:
    return np.random.default_rng(7)


def test_offsets_and_medians_of_blocks_add_up() -> None:
    """The median of eight normals has 1.16 / sqrt(8) of their SD."""
    values = Clock(offset_sd=0.003, block_sd=0.008).values(random(), 5000, 2)
    expected = math.hypot(0.003, 1.16 * 0.008 / math.sqrt(8))
    assert np.std(values) == pytest.approx(expected, rel=0.03)


def test_drift_cancels_and_a_bent_warm_up_does_not() -> None:
    drifting = Clock(offset_sd=0.0, block_sd=0.0, drift=0.1)
    assert np.max(np.abs(drifting.values(random(), 50, 4))) < 1e-12
    warming = Clock(offset_sd=0.0, block_sd=0.0, warm_up=0.1)
    left = warming.values(random(), 50, 4)
    assert np.max(np.abs(left)) > 1e-6
    assert set(np.sign(left).ravel()) == {-1.0, 1.0}


def test_placement_changes_sign_from_launch_to_launch() -> None:
    values = Clock(offset_sd=0.0, block_sd=0.0, placement=0.001).values(random(), 1, 4)
    assert values[0] == pytest.approx([0.001, -0.001, 0.001, -0.001])


def test_modes_are_as_likely_in_either_arm() -> None:
    values = Clock(offset_sd=0.0, block_sd=0.0, mode_gap=0.01).values(random(), 4000, 2)
    shares = {gap: float(np.mean(np.isclose(values, gap))) for gap in (-0.01, 0.0, 0.01)}
    assert shares == {
        -0.01: pytest.approx(0.21, abs=0.02),
        0.0: pytest.approx(0.58, abs=0.02),
        0.01: pytest.approx(0.21, abs=0.02),
    }


@pytest.mark.parametrize("degrees", [1.0, 2.0, 5.0])
def test_heavy_tails_keep_the_quartiles_of_a_normal(degrees: float) -> None:
    values = Clock(offset_sd=0.01, block_sd=0.0, offset_tail=degrees).values(random(), 20_000, 1)
    assert scipy_stats.iqr(values, scale="normal") == pytest.approx(0.01, rel=0.03)
    assert noise.tail(values.ravel()) == pytest.approx(degrees, rel=0.15)


@pytest.mark.parametrize("correlation", [0.3, 0.95])
def test_wander_remembers(correlation: float) -> None:
    clock = Clock(offset_sd=0.0, block_sd=0.0, wander=0.01, correlation=correlation)
    values = clock.values(random(), 5000, 3)
    assert np.std(values, axis=0) == pytest.approx([0.01] * 3, rel=0.05)
    made = np.corrcoef(values[:, 1], values[:, 2])[0, 1]
    assert made == pytest.approx(correlation, abs=0.05)
    assert clock.remembers
    assert not QUIET.remembers


def test_first_launches_differ_and_later_ones_do_not() -> None:
    clock = Clock(offset_sd=0.0, block_sd=0.0, first_launches=0.01, bias=0.002)
    values = clock.values(random(), 3000, 36)
    assert np.std(values[:, 0]) == pytest.approx(0.01, rel=0.05)
    assert values[:, -1] == pytest.approx(0.002, abs=1e-4)


def test_one_launch_of_records_gives_the_same_value() -> None:
    """A warm-up through records and `pair_ratio`, the way that real windows take."""
    clock = Clock(offset_sd=0.0, block_sd=0.0, warm_up=0.05)
    exact = {"noise": 0.0, "launch_noise": 0.0}
    raw = launches(
        1,
        "transfer/pinned_copy",
        {"bytes": 4096},
        [arm("a", 1e-3, **exact), arm("b", 1e-3, **exact)],
        drift=lambda position: 0.05 * math.exp(-position / 4),
    )
    pair = stats.pair_ratio([read_record(raw[0])], "b", "a")
    assert pair is not None
    simulated = np.abs(clock.values(random(), 1, 1)[0, 0])
    assert abs(math.log(pair.ratio.value)) == pytest.approx(simulated, rel=1e-5)


def test_three_times_worse_is_three_times_the_noise() -> None:
    models, worst = fitted()
    once, thrice = (clocks(models[MATMUL], worst, factor) for factor in (1, 3))
    assert thrice["white"].offset_sd == pytest.approx(3 * once["white"].offset_sd)
    assert thrice["placement"].placement == pytest.approx(3 * worst.placement)
    assert once["white"].offset_sd == models[MATMUL].launch_sd
    assert hostile(models[MATMUL], worst)["bias x3"].bias == pytest.approx(3 * worst.bias)


def test_extremes_leave_planted_changes_out_of_the_bias() -> None:
    models, worst = fitted()
    assert worst == Extremes.of(models.values())
    assert worst.bias < 0.001 < models["testing/planted_spin"].mean
