"""Numbers of launches."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy import stats as scipy_stats

from gpulift.advise import launches
from gpulift.advise.evidence import BASELINE
from tests.advise.made import STEP_S, replay, silent, turn


def test_holm_rejects_from_the_smallest_on_until_one_is_kept() -> None:
    assert launches.holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert launches.holm([0.04, 0.012, 0.024]) == [True, True, True]
    assert launches.holm([0.06]) == [False]
    assert launches.holm([]) == []


def test_p_value_as_of_student() -> None:
    logs = [0.01, 0.02, 0.018, 0.03]
    assert launches.p_value(logs) == pytest.approx(scipy_stats.ttest_1samp(logs, 0).pvalue)


@pytest.mark.parametrize(("logs", "value"), [([0.5], 1.0), ([0.0, 0.0], 1.0), ([0.1, 0.1], 0.0)])
def test_p_value_without_a_spread(logs: list[float], value: float) -> None:
    assert launches.p_value(logs) == value


def test_a_gain_is_free_of_drift() -> None:
    log = launches.gain_log(replay({"fused": 1.2, "tf32": 1.0}), "fused")
    assert log == pytest.approx(math.log(1.2))


def test_blocks_of_one_arm_alone_give_no_gain() -> None:
    process = replay({"fused": 1.2})
    process = replace(
        process,
        windows=tuple(w for w in process.windows if (w.arm == BASELINE) == (w.block == 0)),
    )
    assert launches.gain_log(process, "fused") is None
    assert launches.gain_log(process, "tf32") is None


def test_a_process_without_steps() -> None:
    assert launches.live_s(silent()) is None
    assert launches.replayed_s(silent(), BASELINE) is None
    assert launches.issued_share(silent()) is None
    assert launches.over_values([None]) is None


def test_a_live_step_is_the_median() -> None:
    assert launches.live_s(turn(BASELINE, 0, STEP_S)) == pytest.approx(STEP_S)
