"""The figures of what several GPUs are worth: scaling, and communication that nothing hides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from gpulift.report import page, scaling
from gpulift.report.drawing import Drawing
from gpulift.report.limits import USUAL
from tests.figures import HOSTILE, analysed, machine_views, summary, undrawn, written
from tests.sample import Json, arm, launches, record

pytestmark = pytest.mark.world

DATA_PARALLEL = "distributed/data_parallel"
EXACT: Json = {"noise": 0.0, "launch_noise": 0.0}
ALONE_S = 0.04
ITEMS = 64.0


def figures_of(records: list[Json]) -> list[Drawing]:
    one = summary(records)
    return scaling.drawings(machine_views([one]))


def scaled(
    gpus: int, gains: dict[str, float], model: str = "gpt2", kind: str = "weak", **other: Any
) -> list[Json]:
    """Two launches of arms that train so many times the items a second of one GPU."""
    items = ITEMS * (gpus if kind == "weak" else 1)
    arms = [ranked("one_gpu", ALONE_S, ITEMS, 1)]
    arms += [
        ranked(name, ALONE_S * items / ITEMS / gain, items, gpus) for name, gain in gains.items()
    ]
    case = {"gpus": gpus, "model": model, "scaling": kind, **other}
    return launches(2, DATA_PARALLEL, case, arms)


def ranked(name: str, step_s: float, items: float, ranks: int, **other: Any) -> Json:
    cost = {"items": items, "item": "token"}
    return arm(name, step_s, cost=cost, ranks=ranks, **EXACT, **other)


def exchanging(name: str, exposed_s: float, without_s: float = ALONE_S) -> Json:
    told = {"exposed_communication_s": exposed_s, "step_without_exchange_s": without_s}
    return ranked(name, exposed_s + without_s, ITEMS, 2, metrics=told)


def panels(one: Drawing) -> list[Axes]:
    return [axes for axes in one.figure.axes if axes.get_visible()]


def series(axes: Axes, arm: str) -> tuple[list[float], list[float]]:
    """The points of an arm, or of a line that has its name in the legend."""
    handles, labels = axes.get_legend_handles_labels()
    found: Any = dict(zip(labels, handles, strict=True))[arm]
    line = found[0] if isinstance(found, tuple) else found
    return np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()


def test_each_arm_has_its_gain_in_items_at_each_number_of_gpus_beside_perfect_scaling() -> None:
    gains = {2: 1.9, 4: 3.7, 8: 7.2}
    records = [one for gpus in (8, 2, 4) for one in scaled(gpus, {"ddp": gains[gpus]})]
    (one,) = figures_of(records)
    (axes,) = panels(one)
    at, gained = series(axes, "ddp")
    assert at == [2, 4, 8]
    assert gained == pytest.approx([1.9, 3.7, 7.2])
    assert series(axes, "perfect") == ([1, 8], [1, 8])
    assert one.alt == (
        "distributed/data_parallel on NVIDIA H200, items a second against one_gpu by GPUs:"
        " gpt2, weak: ddp 1.90× on 2 GPUs (0.95 of n), 3.70× on 4 GPUs (0.93 of n),"
        " 7.20× on 8 GPUs (0.90 of n)."
    )


def test_models_and_ways_of_scaling_have_panels_in_the_order_of_their_cases() -> None:
    records = [
        *scaled(2, {"ddp": 1.6, "data_parallel": 0.5}, kind="strong"),
        *scaled(2, {"ddp": 1.9, "data_parallel": 0.6}),
        *scaled(2, {"ddp": 1.8}, model="resnet50"),
    ]
    (one,) = figures_of(records)
    titles = [axes.get_title("left") for axes in panels(one)]
    assert titles == [
        "model gpt2, scaling strong",
        "model gpt2, scaling weak",
        "model resnet50, scaling weak",
    ]
    strong, weak, images = panels(one)
    gains = [series(axes, "ddp")[1] for axes in (strong, weak, images)]
    assert np.ravel(gains) == pytest.approx([1.6, 1.9, 1.8])  # strong: steps of as many items
    assert strong.get_ylim() == weak.get_ylim() == images.get_ylim()
    assert series(weak, "data_parallel")[1] == pytest.approx([0.6])


def test_panels_beyond_the_most_are_counted() -> None:
    records = [one for n in range(scaling.MOST_PANELS + 2) for one in scaled(2, {"ddp": 1.9}, n=n)]
    (one,) = figures_of(records)
    assert len(panels(one)) == scaling.MOST_PANELS
    assert one.alt.endswith(". 2 more panels: see the table.")


@pytest.mark.parametrize(
    ("case", "arms"),
    [
        ({"gpus": 2}, [ranked("even", 1e-3, 64, 2), ranked("jitter", 2e-3, 64, 2)]),
        ({"gpus": 2}, [ranked("one_gpu", 1e-3, 64, 1), ranked("compiled", 5e-4, 64, 1)]),
        ({"gpus": 4}, [ranked("one_gpu", 1e-3, 64, 1), ranked("ddp", 5e-4, 64, 2)]),
        ({"gpus": "all"}, [ranked("one_gpu", 1e-3, 64, 1), ranked("ddp", 5e-4, 64, 2)]),
        ({"ranks": 2}, [ranked("one_gpu", 1e-3, 64, 1), ranked("ddp", 5e-4, 64, 2)]),
        ({"gpus": 2}, [ranked("one_gpu", 1e-3, 64, 1), ranked("ddp", 5e-4, 0, 2)]),
    ],
)
def test_what_is_not_one_gpu_against_as_many_as_the_case_says_is_no_scaling(
    case: Json, arms: list[Json]
) -> None:
    assert figures_of(launches(2, "a/b", case, arms)) == []


def test_exposed_communication_is_a_share_of_the_step_over_launches() -> None:
    records = [
        record(
            "distributed/overlap",
            {"link": "nvlink"},
            [exchanging("at_the_end", exposed_s), exchanging("buckets", 0.0)],
            launch,
        )
        for launch, exposed_s in enumerate((10e-3, 2e-3, 5e-3))
    ]
    (one,) = figures_of(records)
    (axes,) = one.figure.axes
    said = [text.get_text() for text in axes.texts]
    assert said == [
        *("nvlink: at_the_end", "5.00 ms, 11.1 %"),
        *("nvlink: buckets", "0 s, 0.0 %"),
    ]
    bars = [bar.get_path().get_extents(bar.get_patch_transform()).width for bar in axes.patches]
    assert bars == pytest.approx([100 * 5 / 45, 0])
    ranges = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    assert ranges == [pytest.approx([100 * 2 / 42, 100 * 10 / 50]), [0, 0]]
    assert axes.get_xlabel().endswith("lowest to highest launch, 3 launches each")
    assert one.alt == (
        "distributed/overlap on NVIDIA H200, exposed communication (median launch), of a step:"
        " nvlink: at_the_end 5.00 ms, 11.1 %; nvlink: buckets 0 s, 0.0 %."
    )


def test_of_one_launch_it_is_said_so_and_arms_that_do_not_tell_have_no_row() -> None:
    arms = [exchanging("ddp", 0.0), ranked("zero_1", 0.04, ITEMS, 2), exchanging("no", 1.0, 0.0)]
    (one,) = figures_of(launches(1, "distributed/sharding", {"model": "gpt2"}, arms))
    (axes,) = one.figure.axes
    assert [text.get_text() for text in axes.texts] == ["gpt2: ddp", "0 s, 0.0 %"]
    assert axes.get_xlabel().endswith("\n1 launch")
    assert not axes.lines, "no range"
    assert axes.get_xlim()[0] == 0


def test_what_misses_the_timed_step_is_withheld_and_below_0_is_not_cut() -> None:
    below = exchanging("below", -2e-3)
    misses = exchanging("misses", 0.0)
    misses["metrics"]["exposed_communication_s"] = 5e-3  # of a step of 40 ms
    made = summary(launches(2, "a/b", {"n": 1}, [below, misses]))
    (one,) = scaling.drawings(machine_views([made]))
    assert "n 1: below -2.00 ms, -5.3 %. Withheld of 1 more" in one.alt
    assert one.figure.axes[0].get_xlim()[0] < -5
    html = undrawn(analysed([made]))
    assert '<td class="n" data-label="exposed_communication_s">withheld' in html
    assert '<td class="n" data-label="exposed_communication_s">-2.00 ms' in html


def test_arms_beyond_the_most_are_counted() -> None:
    arms = [exchanging(f"arm_{n}", 1e-3) for n in range(scaling.MOST_ROWS + 1)]
    (one,) = figures_of(launches(1, "a/many", {"n": 1}, arms, blocks=2))
    assert len(one.figure.axes[0].texts) == 2 * scaling.MOST_ROWS
    assert one.alt.endswith(". 1 more arm: see the table.")


def test_figures_beyond_the_most_are_counted_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "limits", lambda _: replace(USUAL, sweeps=1))
    exposed = launches(1, "a/exposed", {"n": 1}, [exchanging("ddp", 1e-3)])
    page.write(analysed([summary([*exposed, *scaled(2, {"ddp": 1.9})])]), tmp_path)
    html = written(tmp_path)
    assert "Figures of 1 techniques on several GPUs are not drawn" in html
    assert (tmp_path / "figures" / "scaling-0-0.svg").is_file()
    assert not (tmp_path / "figures" / "exposed-0-0.svg").exists()


def test_runs_behind_many_others_are_drawn_too() -> None:
    def plain(n: int) -> list[Json]:
        return launches(1, f"a/t{n}", {"n": n}, [arm("x", 2e-3), arm("y", 1e-3), arm("z", 1e-3)])

    runs = [summary(plain(n), f"2026-11-21-{n}") for n in range(USUAL.machines + 1)]
    last = summary(scaled(2, {"ddp": 1.9}), "2026-11-20-last")
    planned = page.contents_of(analysed([*runs, last])).drawings
    assert [one for one in planned if one.name.startswith("scaling-")]


def test_runs_of_a_machine_share_their_figures_and_the_first_counts() -> None:
    def exposed(milliseconds: float, size: int) -> list[Json]:
        arms = [exchanging("ddp", milliseconds * 1e-3)]
        return launches(1, "a/exposed", {"size": size}, arms)

    ordered = [
        summary([*scaled(4, {"ddp": 3.6}), *exposed(1, 1)], "2026-11-21-4"),
        summary([*scaled(2, {"ddp": 1.9}), *exposed(2, 1), *exposed(3, 2)], "2026-11-21-2"),
        summary(scaled(2, {"ddp": 1.5}), "2026-11-20"),
    ]
    scale, share = scaling.drawings(machine_views(ordered))
    (panel,) = panels(scale)
    gpus, gains = series(panel, "ddp")
    assert gpus == [2, 4]
    assert gains == pytest.approx([1.9, 3.6], rel=1e-3)
    assert share.alt.endswith("size 1: ddp 1.00 ms, 2.4 %; size 2: ddp 3.00 ms, 7.0 %.")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_drawn_as_they_are(name: str) -> None:
    records = scaled(2, {name: 1.9}, model=name)
    for made in records:
        step_s = sum(made["arms"][1]["windows"]["device_s"]) / len(made["order"]["blocks"]) / 20
        told = {"exposed_communication_s": 1e-3, "step_without_exchange_s": step_s - 1e-3}
        made["arms"][0]["name"] = name + name
        made["arms"][1]["metrics"] = told
    drawn = "".join(one.svg for one in figures_of(records))
    assert drawn.count("<svg") == 2
    assert "<script" not in drawn
    assert not set(drawn) & {"\u202e", "\u2066", "\x1b", "\x00"}


def test_the_page_has_them_with_their_texts_and_no_sweep_of_the_same(tmp_path: Path) -> None:
    records = [one for gpus in (2, 4, 8) for one in scaled(gpus, {"ddp": 0.9 * gpus})]
    html = written(page.write(analysed([summary(records)]), tmp_path).parent)
    assert '<li><a href="pages/several-gpus.html">Several GPUs</a></li>' in html
    part = html[html.index('<h2 id="scaling">') :]
    assert 'aria-label="distributed/data_parallel on NVIDIA H200, items a second' in part
    drawn = {file.name for file in (tmp_path / "figures").glob("*.svg")}
    assert "scaling-0-0.svg" in drawn
    assert not any(name.startswith("t-") for name in drawn)


def test_there_is_no_section_without_such_records() -> None:
    plain = launches(2, "a/b", {"gpus": 2}, [arm("x", 2e-3), arm("y", 1e-3)])
    html = undrawn(analysed([summary(plain)]))
    assert 'id="scaling"' not in html
    assert "#scaling" not in html
