"""What the report says of arms beside their time: memory, launches, joules, items, metrics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpulift.analysis import facts
from gpulift.analysis.facts import Facts
from gpulift.analysis.summary import Worth
from gpulift.records.model import Arm, Cost, Windows
from gpulift.records.parse import read_record
from gpulift.report import technique_views
from gpulift.verdicts.cases import Case
from tests import sample
from tests.figures import analysed, summary, undrawn

pytestmark = pytest.mark.world

GIB = 1 << 30
IMAGES = Cost(items=32.0, item="image")


def arm(**other: object) -> Arm:
    return Arm("x", "technique", "ok", **other)  # type: ignore[arg-type]


def facts_of(*launches: Arm) -> Facts:
    """Of an arm in so many launches, each of a window of a second where it names none."""
    one = read_record(sample.record("a/b", {"n": 1}, [sample.arm("x", 1.0)]))
    windows = [arm.windows if arm.window_s else Windows(host_s=(1.0,)) for arm in launches]
    arms = [replace(arm, windows=its) for arm, its in zip(launches, windows, strict=True)]
    return facts.facts(Case("a/b", "n:1", tuple(replace(one, arms=(arm,)) for arm in arms)), "x")


def steps(name: str, seconds: float, launches: int, **metrics: float) -> sample.Json:
    """A whole training step of 32 images."""
    known = {
        "peak_allocated_bytes": 2 * GIB,
        "peak_reserved_bytes": 3 * GIB,
        "kernel_launches_per_step": launches,
        "joules_per_step": 64.0,
    }
    cost = {"flops": 1e12, "items": 32.0, "item": "image", "roof": "gemm/bf16"}
    exact = {"noise": 0.0, "launch_noise": 0.0, "memory": 2 * GIB}
    return sample.arm(name, seconds, cost=cost, metrics={**known, **metrics}, **exact)


def training(**metrics: float) -> list[sample.Json]:
    arms = [steps("eager", 0.1, 900), steps("graph", 0.05, 1, **metrics)]
    return sample.launches(3, "training/step", {"batch": 32}, arms)


def worth(records: list[sample.Json]) -> Worth:
    (found,) = summary(records).worths
    return found


def test_over_launches_peaks_are_the_most_joules_the_mean_and_metrics_the_median() -> None:
    launches = [
        arm(
            peak_device_bytes=bytes_,
            metrics={"peak_reserved_bytes": peak, "joules_per_step": joules, "share": share},
        )
        for bytes_, peak, joules, share in ((1, 30, 1.0, 0.1), (3, 10, 2.0, 0.2), (2, 20, 6.0, 0.9))
    ]
    found = facts_of(*launches)
    assert found.device_bytes == 3
    assert found.joules == pytest.approx(3.0)
    assert found.metrics == {"peak_reserved_bytes": 30, "joules_per_step": 2.0, "share": 0.2}


def test_a_metric_that_a_launch_lacks_is_of_the_others() -> None:
    assert facts_of(arm(metrics={"a": 1.0}), arm()).metrics == {"a": 1.0}


def test_the_windows_joules_come_first() -> None:
    windows = Windows(host_s=(1.0,), energy_j=(20.0,))
    one = arm(windows=windows, steps_per_window=10, metrics={"joules_per_step": 9.0})
    assert facts_of(one).joules == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("one", "baseline", "said"),
    [
        (Facts(), Facts(), ("–",)),
        (Facts(0, 0), Facts(0, 0), ("–",)),
        (Facts(device_bytes=2 << 20), Facts(device_bytes=0), ("device 2.00 MiB / 0 B",)),
        (Facts(device_bytes=2 << 20), Facts(), ("device 2.00 MiB / not known",)),
        (Facts(0, GIB), Facts(0, 0), ("pinned 1.00 GiB / 0 B",)),
        (
            Facts(2 << 20, GIB),
            Facts(0, 0),
            ("device 2.00 MiB / 0 B", "pinned 1.00 GiB / 0 B"),
        ),
        (Facts(GIB, 1344), Facts(2 * GIB, 1344), ("device 1.00 GiB / 2.00 GiB",)),
        (
            Facts(GIB, metrics={"peak_reserved_bytes": 2 * GIB}),
            Facts(GIB),
            ("device 1.00 GiB / 1.00 GiB", "reserved 2.00 GiB / not known"),
        ),
        (Facts(host_bytes=GIB), Facts(host_bytes=2 * GIB), ("host 1.00 GiB / 2.00 GiB",)),
    ],
)
def test_memory_says_of_which_kind_it_is(
    one: Facts, baseline: Facts, said: tuple[str, ...]
) -> None:
    assert facts.memory(one, baseline) == said


@pytest.mark.parametrize(
    ("device", "host", "most"),
    [(None, None, None), (0, None, 0), (0, 5, 5), (3, 5, 3), (None, 5, 5)],
)
def test_the_memory_that_sorts_is_the_device_s_where_it_used_any(
    device: int | None, host: int | None, most: int | None
) -> None:
    assert Facts(device, None, host).memory_bytes == most


def test_joules_are_told_per_item_where_both_have_some() -> None:
    known, unknown = Facts(joules=64.0, item_joules=2.0, cost=IMAGES), Facts(cost=IMAGES)
    assert facts.energy(known, known) == (
        "64.0 J / 64.0 J a step",
        "2.00 J / 2.00 J per image",
    )
    assert facts.energy(known, unknown) == ("64.0 J / – a step", "2.00 J / – per image")
    assert facts.energy(unknown, unknown) == ("–",)
    nameless = Facts(joules=1.0, cost=Cost(items=32.0))
    assert facts.energy(nameless, nameless) == ("1.00 J / 1.00 J",)


def test_launches_that_one_side_lacks_are_not_known() -> None:
    graph, other = Facts(metrics={"kernel_launches_per_step": 1}), Facts()
    assert facts.launches(graph, other) == "1 / not known"
    assert facts.launches(other, other) == "–"


def test_items_have_their_rate_beside_the_roof_s() -> None:
    row = worth(training())
    assert technique_views.rates(row) == ("640 images/s", "20.0 TFLOP/s")
    assert row.items_per_s is not None
    assert row.items_per_s.value == pytest.approx(640)


def test_items_without_a_name_are_items_once() -> None:
    arms = [sample.arm(n, 1e-3, cost={"items": 5e3}, noise=0.0, launch_noise=0.0) for n in "ab"]
    assert technique_views.rates(worth(sample.launches(1, "a/b", {"n": 1}, arms))) == (
        "5.00 million items/s",
    )


def test_hostile_items_and_metrics_are_texts(tmp_path: Path) -> None:
    records = training()
    for one in records:
        for made in one["arms"]:
            made["cost"]["item"] = "<script>alert(1)</script>"
            made["metrics"]["<b>|x"] = 1.0
    html = undrawn(analysed([summary(records)]), tmp_path)
    assert "<script>alert" not in html
    assert "<script>alert" not in (tmp_path / "report.md").read_text("utf-8")
    assert "&lt;b&gt;|x" in html
