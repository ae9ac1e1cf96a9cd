"""What a record says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from gpulift.records.parse import read_record
from tests import sample


@pytest.mark.parametrize(
    ("told", "roof", "pace"),
    [
        ({"stop": {"reason": "precise", "blocks": 8}}, "gemm/bf16", "mixed"),
        ({"whole_steps": True}, "", "mixed"),
        ({}, "device_memory", "burst"),
        ({"ceiling": True}, "gemm/bf16", "burst"),
        ({"regime": "sustained"}, "gemm/bf16", "sustained"),
        ({}, "gemm/bf16", "burst"),
        ({"kind": "duet", "arm": "a"}, "gemm/bf16", "burst"),
        ({"context": sample.CPU_CONTEXT}, "host_gemm/fp32", "burst"),
    ],
)
def test_a_burst_of_operations_without_rests_is_at_a_mixed_pace(
    told: dict[str, Any], roof: str, pace: str
) -> None:
    arms = [sample.arm(name, 1e-3, cost={"flops": 1e9, "roof": roof}) for name in ("a", "b")]
    raw = {**sample.record("gemm/own", {}, arms), **told}
    assert read_record(raw).pace == pace


def test_windows_of_visits_come_in_the_order_of_time() -> None:
    made = sample.visited({}, (1.0, 2.0), 0.01)
    first, second = read_record(made).arms
    for one in (first, second):
        assert list(one.windows_in_time_s) == sorted(one.window_s) != list(one.window_s)
    order = read_record(made).order
    assert order is not None
    assert order.visits == (0, 1, 1, 0)


def test_windows_without_moments_stay_in_their_order() -> None:
    made = sample.record("own/step", {}, [sample.arm("x", 1.0)])
    made["arms"][0]["windows"].pop("start_s", None)
    (one,) = read_record(made).arms
    assert list(one.windows_in_time_s) == list(one.window_s)
