"""Numbers of launches."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy import stats as scipy_stats

from gpulift.advise import launches
from gpulift.advise.evidence import BASELINE, PROCESSOR, Live
from tests.advise.made import GPU, replay, silent, turn


def test_p_value_as_of_student() -> None:
    logs = [0.01, 0.02, 0.018, 0.03]
    assert launches.p_value(logs) == pytest.approx(scipy_stats.ttest_1samp(logs, 0).pvalue)


@pytest.mark.parametrize(("logs", "value"), [([0.5], 1.0), ([0.0, 0.0], 1.0), ([0.1, 0.1], 0.0)])
def test_p_value_without_a_spread(logs: list[float], value: float) -> None:
    assert launches.p_value(logs) == value


@pytest.mark.parametrize(
    ("device", "wait_share", "waits", "left"),
    [
        (GPU, 0.3, 0.4, 0.7),
        (GPU, 0.3, 0.2, 0.8),  # of batches that are shorter than most
        (GPU, -0.3, 0.2, 1.0),
        (PROCESSOR, 0.1, 0.4, 0.6),
        (PROCESSOR, 0.1, 1.0, 0.01),
        (GPU, 0.3, None, 0.7),
    ],
)
def test_what_is_left_where_input_is_there(
    device: str, wait_share: float, waits: float | None, left: float
) -> None:
    process = replay({}, wait_share=wait_share, device=device)
    if waits is not None:
        steps_s = tuple(process.steps_s)
        told = Live(steps_s=steps_s, waits_s=tuple(waits * step_s for step_s in steps_s))
        process = replace(process, live=(told,))
    rest_log = launches.rest_log(process)
    assert rest_log is not None
    assert math.exp(rest_log) == pytest.approx(left, rel=1e-3)
    assert launches.rest_log(replace(process, windows=())) is None


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


def test_waits_of_a_loader_that_delivers_in_bursts_are_in_the_step() -> None:
    bursts = replace(turn(BASELINE, 0, 1.0), live=(Live(steps_s=(0.1, 0.1, 0.1, 0.5) * 3),))
    even = turn("workers_8", 0, 0.1)
    assert launches.live_s(bursts) == pytest.approx(0.2)
    assert launches.paired_gain_log(even, [bursts]) == pytest.approx(math.log(2))
