"""Fits of noise: known noise is found again, and the committed fits are those of the records."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from gpulift.records.parse import read_record
from gpulift.verdicts.cases import Case
from tests import noise
from tests.sample import arm, launches


def duet(count: int, **how: float) -> noise.NoiseModel:
    arms = [arm("base:a", 1e-3, **how), arm("head:a", 1e-3, **how)]
    raw = launches(count, "transfer/pinned_copy", {"bytes": 4096}, arms)
    return noise.fit([read_record(one) for one in raw])


def test_known_noise_is_found_again() -> None:
    """Arms that differ by 0.4 % SD each from launch to launch, 0.2 % from window to window."""
    made = duet(200, noise=0.002, launch_noise=0.004)
    assert (made.launches, made.blocks) == (200, 8)
    assert made.block_sd == pytest.approx(0.002, rel=0.1)
    assert made.block_quartile_sd == pytest.approx(0.002, rel=0.15)
    assert made.between_sd == pytest.approx(0.004 * math.sqrt(2), rel=0.12)
    assert made.step_sd == pytest.approx(0.004, rel=0.15)
    assert made.window_sd == pytest.approx(0.002, rel=0.15)
    assert abs(made.launch_autocorrelation) < 0.2
    assert abs(made.placement) < 0.001
    assert abs(made.drift) < 1e-3
    assert made.mean_p > 0.01
    assert made.mode_explained < 0.75


def test_tail_tells_a_normal_from_heavy_tails() -> None:
    random = np.random.default_rng(3)
    assert noise.tail(1e-5 * random.standard_normal(3000)) > 20
    assert noise.tail(1e-5 * random.standard_t(2, 3000)) == pytest.approx(2, rel=0.2)


def test_neighbours_of_alternating_values() -> None:
    assert noise.neighbours(np.array([1.0, -1.0] * 10)) == pytest.approx(-1)


def test_modes_by_hand() -> None:
    gap, share, explained = noise.modes(np.array([5.0, 1.0, 1.0, 1.0]))
    assert (gap, share) == (4, 0.25)
    assert explained == pytest.approx(1)


def test_modes_of_a_normal_explain_two_thirds() -> None:
    values = np.random.default_rng(3).standard_normal(3000)
    assert noise.modes(values)[2] == pytest.approx(2 / math.pi, abs=0.03)


def runs(shift: float, cases: int = 60) -> noise.BetweenRuns:
    """Two runs of many cases; the second is off by `shift` or its negative, case by case."""
    made: list[list[Case]] = [[], []]
    for index in range(cases):
        for run in range(2):
            seconds = 1e-3 * math.exp(run * shift * (-1) ** index)
            raw = launches(
                3,
                "transfer/pinned_copy",
                {"bytes": index},
                [arm("a", seconds, noise=0.0, launch_noise=0.004)],
                seed=run,
            )
            records = tuple(read_record(one) for one in raw)
            made[run].append(Case(records[0].technique, records[0].case_id, records))
    return noise.fit_between_runs(*made)


def test_runs_that_differ_by_more_than_their_launches_show() -> None:
    same, apart = runs(0.0), runs(0.016)
    assert same.arms == apart.arms == 60
    assert same.launch_sd == pytest.approx(0.004, rel=0.35)
    assert same.beyond < 0.15 < 0.5 < apart.beyond
    assert same.sd_ratio < 0.7 < 1.5 < apart.sd_ratio


def test_committed_fits_are_those_of_the_committed_records() -> None:
    models, between = noise.measure()
    by_case, loaded = noise.load()
    assert [one.records for one in models] == [one.records for one in by_case.values()]
    for one in models:
        committed = asdict(by_case[one.case])
        for name, value in asdict(one).items():
            if isinstance(value, float):  # fits of tails depend a little on scipy's version
                assert committed[name] == pytest.approx(value, rel=0.05, abs=1e-9), name
    assert asdict(loaded) == pytest.approx(asdict(between), rel=0.05)
    shown = noise.table(by_case.values(), loaded)
    assert all(case in shown for case in by_case)
    assert len(by_case) == 7
    assert all(len(one.records) == one.launches for one in by_case.values())


def test_written_fits_are_read_back() -> None:
    by_case, between = noise.load()
    text = noise.dump(list(by_case.values()), between)
    assert json.loads(text) == json.loads(noise.FILE.read_text(encoding="utf-8"))
