"""Converting a record in C gives what reading it carefully gives, or leaves the line to that."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from gpulift.records.convert import converted
from gpulift.records.model import Windows
from gpulift.records.parse import read_record
from tests import runs_made, sample
from tests.conftest import CHECKOUT
from tests.fuzz_records import require_same_either_way

GOOD = sample.record("a/b", {"n": 1}, [sample.arm("x", 1e-3), sample.arm("y", 2e-3)])


def changed(change: Callable[[Any], object]) -> Any:
    """The good record, after this was done to it."""
    raw = copy.deepcopy(GOOD)
    change(raw)
    return raw


def test_every_committed_record_is_converted() -> None:
    for file in (CHECKOUT / "results").rglob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            assert require_same_either_way(json.loads(line)), file


def test_what_schema_1_7_added_is_converted() -> None:
    for raw in runs_made.of_ranks_and_disks():
        assert require_same_either_way(raw)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw["arms"][0]["windows"].update(host_s=[1] * 16),
        lambda raw: raw["arms"][0]["windows"].update(energy_j=[None, *[0.5] * 15]),
        lambda raw: raw["arms"][0].pop("windows") and raw["arms"][0].update(outcome="failed"),
        lambda raw: raw["case"].update(n=-0.0, word="w", large=2**63 - 1),
        lambda raw: raw.update(file="f", new=[{}]),
        lambda raw: raw.update(line=5, start=1, parsed={}),
        lambda raw: raw.update(check_meaning=1, check={"meaning": "m"}, duet_arm="no", arm="x"),
        lambda raw: raw["telemetry"].pop("throttle"),
        lambda raw: raw["telemetry"].update(more={"min": 1, "median": 2, "max": 3}),
    ],
)
def test_unusual_records_are_read_alike(change: Callable[[Any], object]) -> None:
    assert read_record(changed(change))
    require_same_either_way(changed(change))


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw["arms"][0].update(check_error=None),
        lambda raw: raw["arms"][0]["windows"].update(host_s=[True] * 16),
        lambda raw: raw["arms"][0]["windows"].update(host_s=[float("inf")] * 16),
        lambda raw: raw["arms"][0]["windows"].update(host_s=[float("nan")] * 16),
        lambda raw: raw["arms"][0]["windows"].update(energy_j=[0.5]),
        lambda raw: raw["arms"][0]["windows"].update(cpu_s=[0.5]),
        lambda raw: raw["arms"][0].update(ranks=0),
        lambda raw: raw["arms"][0].update(steps_per_window=1.0),
        lambda raw: raw["arms"][0].update(peak_host_bytes=2**64 + 1),
        lambda raw: raw["case"].update(n=10**400),
        lambda raw: raw["telemetry"].update(ranges={"power_w": {"min": 1, "median": 2, "max": 3}}),
        lambda raw: raw.update(stop=None),
    ],
)
def test_what_is_wrong_is_left_to_the_careful_way(change: Callable[[Any], object]) -> None:
    assert converted(changed(change)) is None


def test_windows_are_arrays_whoever_makes_them() -> None:
    assert Windows(host_s=(1.0, 2.0)) == Windows(host_s=[1.0, 2.0])
    assert memoryview(Windows(host_s=(1.0,)).host_s).format == "d"  # type: ignore[arg-type]
