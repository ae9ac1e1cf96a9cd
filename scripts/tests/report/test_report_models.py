"""Models side by side: medians over runs, what is not comparable, what others publish."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift.analysis.analyse import read_beside
from gpulift.analysis.reference import Published, Reference
from gpulift.analysis.summary import Summary
from gpulift.report import beside, models
from gpulift.report.machine_views import technique_ids
from gpulift.report.models import ModelsView
from tests import runs_made, sample
from tests.conftest import CHECKOUT
from tests.figures import HOSTILE, on_gpu, section, summary

A100 = "NVIDIA A100-SXM4-80GB"


def run(gain: float, context: sample.Json, **cost: float) -> Summary:
    """A technique that gains so much on a card."""
    quiet = {"noise": 1e-4, "launch_noise": 1e-4, "cost": cost}
    arms = [sample.arm("slow", 1e-3, **quiet), sample.arm("fast", 1e-3 / gain, **quiet)]
    made = sample.launches(3, "a/b", {"n": 1}, arms, context=context)
    return summary(made, context["gpu"]["card"])


def views_of(
    summaries: Sequence[Summary], references: Sequence[Reference]
) -> tuple[ModelsView, ...]:
    return models.views(summaries, references, technique_ids(summaries))


def only(found: tuple[ModelsView, ...]) -> ModelsView:
    (view,) = found
    return view


def test_a_models_figure_is_the_median_over_its_runs() -> None:
    cards = [run(gain, on_gpu(A100, card)) for gain, card in ((2.0, "aa"), (8.0, "bb"), (4, "cc"))]
    view = only(views_of([run(3.0, sample.GPU_CONTEXT), *cards], []))
    assert [column.counted for column in view.columns] == ["one card", "3 cards"]
    h200, a100 = view.rows[0].cells
    assert h200 is not None
    assert a100 is not None
    assert (h200.basis, a100.basis) == ("one run", "3 runs, 3 cards")
    assert a100.value.value == pytest.approx(4.0, rel=1e-3)
    half = 4.3027 * math.log(2) * math.sqrt(math.pi / 2 / 3)
    assert a100.value.high == pytest.approx(4 * math.exp(half), rel=0.01)
    assert view.rows[0].change == pytest.approx(4 / 3, rel=1e-3)


def test_runs_of_one_card_are_no_more_cards() -> None:
    runs = [
        replace(one, run=replace(one.run, folder=Path(f"run-{number}")))
        for number, one in enumerate(run(gain, on_gpu(A100, "aa")) for gain in (2.0, 2.1))
    ]
    view = only(views_of([run(3.0, sample.GPU_CONTEXT), *runs], []))
    cell = view.rows[0].cells[1]
    assert cell is not None
    assert cell.basis == "two runs"


def test_a_machine_without_a_gpu_is_a_column_where_it_measured() -> None:
    host = copy.deepcopy(runs_made.without_gpu()[3:6])
    for one in host:
        one["context"] = copy.deepcopy(sample.GPU_CONTEXT)
    view = views_of([summary(runs_made.without_gpu()), summary(host)], [])[0]
    assert view.title == "allocator/host_malloc"
    assert [column.counted for column in view.columns] == ["one machine", "one card"]
    assert any(one.startswith("host: ") for one in view.differs)


def test_other_work_is_not_compared() -> None:
    machines = [run(2.0, sample.GPU_CONTEXT, items=5.0), run(3.0, on_gpu(A100, "aa"), items=6.0)]
    view = only(views_of(machines, []))
    assert not view.rows[0].same_work
    assert view.rows[0].change is None
    assert view.figure is None
    assert "not the same work" in rendered((view,))


def test_ceilings_stand_side_by_side_as_rates() -> None:
    other = runs_made.full_gpu()
    for one in other:
        one["context"] = on_gpu(A100, "aa")
    view = views_of([summary(runs_made.full_gpu()), summary(other)], [])[-1]
    assert view.ceilings
    row = next(row for row in view.rows if row.arm == "gemm/bf16")
    assert row.change == pytest.approx(1.0)
    cell = row.cells[0]
    assert cell is not None
    assert re.match(r"848 \[\d+, \d+\] TFLOP/s", beside.shown(row, cell))


def test_published_figures_stand_apart_beside_what_was_measured() -> None:
    full = summary(runs_made.full_gpu())
    entry = Published(9e14, "FLOP/s", "best shape", "torch", "a paper", "2026-01-01", "gemm/bf16")
    known = [Reference("NVIDIA H200", {}, {}, (entry,)), Reference("Other", {}, {}, (entry,))]
    view = only(views_of([full], known))
    assert view.rows == ()
    measured = [(row.model, row.shown, row.measured) for row in view.published]
    both = "848 TFLOP/s burst, 738 TFLOP/s sustained"
    assert measured == [("NVIDIA H200", "900 TFLOP/s", both)]
    html = rendered((view,))
    assert "ublished by others, not measured by gpulift" in html
    assert "a paper" in html


def test_where_nothing_is_published_of_a_model_that_of_others_is_shown() -> None:
    entry = Published(9e14, "FLOP/s", "best shape", "torch", "a paper", "2026-01-01", "gemm/bf16")
    known = [Reference("NVIDIA H200", {}), Reference("Other", {}, {}, (entry,))]
    view = only(views_of([summary(runs_made.full_gpu())], known))
    assert [(row.model, row.measured) for row in view.published] == [("Other", "")]


def test_a_check_names_one_regime() -> None:
    entry = Published(1.0, "FLOP/s", "m", "c", "s", "2026-01-01", check="roof/gemm/bf16/burst")
    known = [Reference("NVIDIA H200", {}, {}, (entry,))]
    view = only(views_of([summary(runs_made.full_gpu())], known))
    assert view.published[0].measured == "848 TFLOP/s burst"


def test_one_model_and_nothing_published_is_no_view() -> None:
    assert views_of([summary(runs_made.full_gpu())], []) == ()
    assert views_of([], []) == ()


def test_every_committed_reference_is_read() -> None:
    known = read_beside(CHECKOUT / "results").references
    assert {"NVIDIA H200", "NVIDIA B200"} <= {one.name for one in known}
    assert read_beside(Path("/nowhere")).references == ()


def test_figure_and_text_tell_what_changes_most() -> None:
    machines = [run(2.0, sample.GPU_CONTEXT), run(3.0, on_gpu(A100, "aa"))]
    view = only(views_of(machines, []))
    assert view.figure is not None
    assert "fast, n 1, 2.00× on NVIDIA H200, 3.00× on NVIDIA A100-SXM4-80GB" in view.figure.alt
    (axes,) = view.figure.figure.axes
    assert [words.get_text() for words in axes.texts] == ["fast, n 1", "1.50× apart"]
    page = rendered((view,))
    for words in ("Two single cards never stand for two models", "one run", "1.50×"):
        assert words in page
    assert view.rows[0].cells[0] is not None
    assert f"#r-{view.rows[0].cells[0].records[0].id}" in page


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_not_break_the_drawing(name: str) -> None:
    machines = [run(2.0, on_gpu(name, "aa")), run(3.0, on_gpu(A100, "bb"))]
    view = only(views_of(machines, []))
    page = rendered((view,))
    assert "<script" not in page
    assert "<b>&amp;amp;" not in page


def rendered(found: tuple[ModelsView, ...]) -> str:
    """The section of the page."""
    cells = (cell for view in found for row in view.rows for cell in row.cells if cell)
    on_page = {record.id for cell in cells for record in cell.records}
    drawn = {view.figure.name: view.figure for view in found if view.figure}
    return section("models", models=found, on_page=on_page, figures=drawn)
