"""Figures on the page and as files: themed, labelled, and safe from what records hold."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from gpulift.ground.estimate import Estimate
from gpulift.report import plots
from gpulift.report.drawing import Drawing
from tests import runs_made, sample
from tests.figures import HOSTILE, summary

ESTIMATE = Estimate(2.0, 1.9, 2.1, 3)


def forest(label: str, alt: str = "finding") -> Drawing:
    rows = [plots.ForestRow(label, ESTIMATE, "2.00×", beside=label)]
    return Drawing("x", alt, partial(plots.forest, rows, plots.SPEEDUP_AXIS))


def test_inline_figures_bring_no_style_and_no_ids_of_their_own() -> None:
    drawn = forest("a").svg
    ElementTree.fromstring(drawn)
    assert drawn.startswith('<svg role="img" aria-label="finding"')
    for unwanted in ("<style", "<!--", "<metadata", "<title", 'id="figure_1"', 'id="axes_1"'):
        assert unwanted not in drawn
    assert "var(--ink)" in drawn


def test_inline_figures_are_terse_in_places_and_exact_in_words() -> None:
    drawn = forest("0.12345 a: b").svg
    assert not re.search(r"<[^>]*(\.\d{3}|\n)", drawn)
    assert "font-family: " not in drawn
    assert "0.12345 a: b" in drawn.unescape()


def test_a_figure_is_laid_out_once_for_all_formats(tmp_path: Path) -> None:
    one = forest("a" * plots.LABEL_LETTERS)
    (axes,) = one.figure.axes
    place = axes.get_position().bounds
    one.write_svg(tmp_path / "x.svg")
    one.write_png(tmp_path / "x.png")
    assert one.figure.get_layout_engine() is None
    assert axes.get_position().bounds == place


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_drawn_as_they_are(text: str, tmp_path: Path) -> None:
    one = forest(text, text)
    one.write_svg(tmp_path / "x.svg")
    one.write_png(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert "<script" not in one.svg
    printable = text.isprintable() and len(text) < 50
    labels = [words.get_text() for words in one.figure.axes[0].texts]
    assert (text in labels) == printable


@pytest.mark.parametrize("text", ["$x_{", r"\frac{1}{2}$$"])
def test_hostile_arms_and_axes_of_a_sweep(text: str) -> None:
    records = runs_made.full_gpu()
    for one in records:
        for arm in one["arms"]:
            arm["name"] = {"pinned": text}.get(arm["name"], arm["name"])
        if "direction" in one["case"]:
            one["case"] = {text: one["case"]["direction"], "bytes": one["case"]["bytes"]}
    rows = summary(records).worths_of("transfer/pinned_copy")
    assert text in Drawing("x", "a", partial(plots.sweep, rows)).svg.unescape()


def test_figures_say_how_many_launches_they_rest_on() -> None:
    assert forest("a").figure.axes[0].get_xlabel().endswith("\n3 launches each")
    assert plots.launches([ESTIMATE, Estimate(1.0, launches=5)]) == "3 to 5 launches each"
    assert plots.launches([Estimate(1.0, launches=1)]) == "1 launch"
    assert plots.launches([]) == "no launches"


def test_costs_stand_beside_a_speedup() -> None:
    best = summary(runs_made.full_gpu()).worths[0]
    assert plots.costs(best).startswith("device memory 384 MiB against 1.00 MiB")
    assert plots.worth_row(best).beside == (
        f"baseline {best.baseline}, {plots.costs(best)}, bound by device; 3 launches, one run, one"
        " card"
    )
    assert plots.worth_row(best, short=True).beside == ""


def test_what_stands_below_a_label_goes_on_in_the_next_line_and_is_not_cut() -> None:
    said = "baseline one_stream, device memory 384 MiB against 1.00 MiB, bound by device, one run"
    row = plots.ForestRow("a", Estimate(2.0, 1.9, 2.1, 3), "2.00×", beside=said)
    (axes,) = plots.forest([row], "speedup").axes
    texts = [one.get_text() for one in axes.texts]
    assert said in [" ".join(one.split("\n")) for one in texts]


def test_a_case_that_is_too_long_for_a_label_stands_below_it() -> None:
    case = {"shape": "a_shape_of_many_letters", "kind": "another_word_of_many_letters"}
    made = sample.launches(
        3, "theme/technique", case, [sample.arm("x", 2e-3), sample.arm("y", 1e-3)]
    )
    row = plots.worth_row(summary(made).worths[0])
    assert row.label == "theme/technique: y"
    assert row.beside.startswith("a_shape_of_many_letters, another_word_of_many_letters, baseline")


@pytest.mark.parametrize(
    ("label", "shown"), [("short", "short"), ("a" * 11, "a" * 9 + "…"), ("a\u202eb", "a\\u202eb")]
)
def test_labels_are_short_and_visible(label: str, shown: str) -> None:
    assert plots.short(label, 10) == shown


def test_cases_without_the_axis_are_no_part_of_a_sweep() -> None:
    records = runs_made.full_gpu()
    for one in records:
        if one["case"].get("bytes") == 4096:
            one["case"] = {"direction": one["case"]["direction"], "other": 1}
        if one["case"].get("bytes") == 65536:
            one["case"] |= {"bytes": "many"}
    rows = summary(records).worths_of("transfer/pinned_copy")
    assert plots.sweep_axis(rows) == "bytes"
    panels = plots.sweep(rows).axes
    assert len(panels) == 2
    assert all(np.size(axes.lines[0].get_xdata()) == 3 for axes in panels)
