"""Strips of raw windows: every window has its place, small, escaped, and the label tells all."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from gpulift.report.strips import WIDTH, strip
from gpulift.verdicts.cases import Case, group_cases
from tests import runs_made, sample
from tests.figures import HOSTILE, summary

SVG = "{http://www.w3.org/2000/svg}"


def case(records: list[sample.Json]) -> Case:
    return group_cases(summary(records).run.records, "technique")[0]


def paths(drawn: str) -> list[str]:
    """The rows' paths: the first path is the line of the median, the last one the axis."""
    tree = ElementTree.fromstring(drawn)
    assert tree.get("role") == "img"
    return [one.get("d", "") for one in tree.iter("path")][1:-1]


def places(path: str) -> list[list[int]]:
    """The x of each tick, lane by lane."""
    lanes = []
    for lane in path.split("M")[1:]:
        steps = [int(step) for step in re.findall(r"m(\d+)", lane)]
        lanes.append([int(x) for x in np.cumsum([int(lane.split(" ")[0]), *steps])])
    return lanes


def with_windows(step_s: list[list[float]]) -> list[sample.Json]:
    """Launches of one arm that had these windows."""
    made = sample.launches(len(step_s), "a/b", {"n": 1}, [sample.arm("x", 1.0)], blocks=1)
    for record, times in zip(made, step_s, strict=True):
        record["arms"][0]["windows"] = {"device_s": [10 * t for t in times], "host_s": []}
        record["order"]["blocks"] = [[0] * len(times)]
    return made


def test_a_row_per_arm_a_lane_per_launch_a_tick_per_window() -> None:
    drawn = strip(case(with_windows([[1.0, 1.1, 1.2], [1.0, 1.06, 1.2]])), ["x"])
    (path,) = paths(drawn)
    assert places(path) == [[1, WIDTH // 2, WIDTH - 1], [1, 108, WIDTH - 1]]
    assert "v-" in path  # up and down in turn


def test_the_label_states_median_spread_and_outliers() -> None:
    times = [1.0, 1.0, 1.0, 1.01, 1.01, 1.02, 1.02, 1.5]
    drawn = strip(case(with_windows([times, times])), ["x"])
    label = ElementTree.fromstring(drawn).get("aria-label", "")
    assert "x: median 1.01 s a step" in label
    assert "2 outliers in 16 windows of 2 launches" in label
    assert "drawn" not in label


def test_thinning_keeps_the_ends_and_says_so() -> None:
    times = [1.0 + i / 1000 for i in range(500)]
    drawn = strip(case(with_windows([times])), ["x"], most=50)
    (lane,) = places(paths(drawn)[0])
    assert len(lane) == 50
    assert (lane[0], lane[-1]) == (1, WIDTH - 1)
    assert "1 outlier" not in drawn
    assert "0 outliers in 500 windows of 1 launch, 50 of them drawn" in drawn


@pytest.mark.parametrize(
    ("slowest", "words"), [(1.5, ("+50 %", "+0 %")), (4.0, ("log scale", "4×"))]
)
def test_wide_ranges_have_a_log_axis(slowest: float, words: tuple[str, ...]) -> None:
    drawn = strip(case(with_windows([[1.0, 1.0, 1.0, slowest]])), ["x"])
    assert all(word in drawn for word in words)


def test_equal_times_are_no_spread() -> None:
    drawn = strip(case(with_windows([[1.0] * 8])), ["x"])
    assert places(paths(drawn)[0]) == [[WIDTH // 2]]
    assert "interquartile range 0.0 %" in drawn


def test_windows_take_few_bytes() -> None:
    records = sample.launches(3, "a/b", {"n": 1}, [sample.arm("x", 1e-3)], blocks=80)
    found = case(records)
    windows = sum(len(arm.window_s) for r in found.measured for arm in r.arms)
    path = paths(strip(found, ["x"], most=windows))[0]
    assert len(path) < 9 * windows


def test_nothing_measured_draws_nothing() -> None:
    found = case(runs_made.with_troubles()[2:3])
    assert strip(found, ["x"]) == ""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name: str) -> None:
    records = sample.launches(2, f"a/{name}", {"n": name}, [sample.arm(name, 1e-3)])
    drawn = strip(case(records), [name])
    tree = ElementTree.fromstring(drawn)
    assert {one.tag for one in tree.iter()} == {"svg", "text", "path", "g"}
    assert len(drawn) < 3000
