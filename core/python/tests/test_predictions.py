"""Predictions, a case a line."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gpulift_predictions import predictions_in

SWEEP: dict[str, list[Any]] = {"size": [8, 16], "model": ["gpt2", "8x7"]}
ARMS = ["plain", "fast_2"]


def read(*lines: str) -> list[dict[str, Any]]:
    return predictions_in(lines, SWEEP, ARMS)


def test_a_line_says_ranges_of_arms_in_a_case_on_a_machine() -> None:
    place = {"case": {"size": 8, "model": "8x7"}, "on": "nvidia-h200"}
    assert read("size:8/model:8x7 @nvidia-h200: plain 467-488.5 us, fast_2 1.8-2") == [
        {"arm": "plain", **place, "step_time_s": [467e-6, 488.5e-6]},
        {"arm": "fast_2", **place, "speedup": [1.8, 2]},
    ]
    assert read("plain 2-3 s", "@cpu: plain 9-9.5 ms", "size:16: fast_2 0.5-1.0") == [
        {"arm": "plain", "case": {}, "step_time_s": [2, 3]},
        {"arm": "plain", "case": {}, "on": "cpu", "step_time_s": [9e-3, 9.5e-3]},
        {"arm": "fast_2", "case": {"size": 16}, "speedup": [0.5, 1.0]},
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "has '', which is no 'arm 1.8-2.2'"),
        ("size:8: plain 1-2,fast_2 1-2", "has 'plain 1-2,fast_2 1-2', which is no"),
        ("plain 2", "has 'plain 2', which is no"),
        ("plain -1-2", "has 'plain -1-2', which is no"),
        ("plain 1e-3-2e-3 s", "has 'plain 1e-3-2e-3 s', which is no"),
        ("plain 1-2 ns", "has 'plain 1-2 ns', which is no"),
        ("plain 1-nan", "has 'plain 1-nan', which is no"),
        ("plain 3-2", "has 'plain 3-2', whose ends are not above 0 and in their order"),
        ("plain 0-2 ms", "has 'plain 0-2 ms', whose ends are not above 0"),
        (f"plain 1.0-{'9' * 400}.0", "whose ends are not above 0"),
        ("other 1-2", "names 'other', which is no arm"),
        ("size:4: plain 1-2", "asks for size:4, not in its sweep"),
        ("width:8: plain 1-2", "asks for width:8, not in its sweep"),
        ("size: plain 1-2", "asks for size, not in its sweep"),
        ("size:8 on h100: plain 1-2", "has 'size:8 on h100' in front of a colon"),
        ("@h100 size:8: plain 1-2", "has '@h100 size:8' in front of a colon"),
    ],
)
def test_a_line_that_is_wrong_is_refused_in_words(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        read("plain 1-2", line)
