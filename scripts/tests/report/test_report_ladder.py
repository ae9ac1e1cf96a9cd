"""What to turn on: the first section of the page, its figure and its twin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpulift.analysis.analyse import Beside, analyse
from gpulift.analysis.cost import Prices
from gpulift.report import ladder, page
from tests.analysis.test_ladder import LLAMA, SECONDS, climbed, rung
from tests.figures import analysed, machine_views, on_gpu, summary, undrawn
from tests.sample import Json, arm, launches, skipped_arm

pytestmark = pytest.mark.world


def section(html: str) -> str:
    return html[html.index('<h2 id="ladder">') : html.index('<h2 id="answer">')]


def test_a_model_has_a_bar_for_each_setting_with_its_rate_and_gain() -> None:
    (one,) = ladder.views(machine_views([summary(climbed())]))
    (axes,) = one.drawing.figure.axes
    assert [words.get_text() for words in axes.texts[::2]] == list(SECONDS)
    assert [words.get_text() for words in axes.texts[1::2]] == [
        "5000",
        "20000  ▲ 4.00×",
        "40000  ▲ 2.00×",
        "50000  ▲ 1.25×",
    ]
    bars = [bar.get_path().get_extents(bar.get_patch_transform()).width for bar in axes.patches]
    assert bars == pytest.approx([5000, 20000, 40000, 50000])
    assert one.drawing.alt == (
        "Llama 1B on NVIDIA H200, tokens a second by setting, each with all above it and over the"
        " one above: torch_default 5000, tf32 20000 (4.00×), bf16 40000 (2.00×),"
        " compiled 50000 (1.25×)."
    )


def test_the_page_begins_with_it(tmp_path: Path) -> None:
    lean = rung("lean", 0.2, memory=15 << 30)
    faster = launches(3, "a/b", {"model": "gpt2"}, [arm("x", 2e-3), arm("y", 1e-3)])
    made = analysed([summary([*climbed(lean, skipped_arm("fp8", "no <FP8>")), *faster])])
    page.write(made, tmp_path)
    html, twin = ((tmp_path / name).read_text("utf-8") for name in ("index.html", "report.md"))
    first = section(html)
    assert html.index("<h2") == html.index(first)
    assert "10.0× torch&#39;s defaults; tf32 brings 4.00×" in first
    assert "lean costs 20.0 % of the speed and saves 5.00 GiB" in first
    assert "Not measured: fp8 (no &lt;FP8&gt;)" in first
    assert first.count("<svg") == 1
    for word, count in (("faster", 7), ("slower", 1)):  # against the one above, and the defaults
        assert len(re.findall(f'class="{word}" href="pages/[^"]*#r-', first)) == count
    assert "joules" not in first
    assert "USD" not in first
    assert "| lean | 40000 [40000, 40000] | ▼ 0.800× [0.800, 0.800] | ▲ 8.000× " in twin
    assert "](figures/settings-0-0.png)" in twin
    assert (tmp_path / "figures" / "settings-0-0.png").is_file()
    assert twin.index("## What to turn on") < twin.index("## The answer")


def test_joules_and_money_have_columns_where_they_are_known(tmp_path: Path) -> None:
    records = climbed(power_w=500.0)
    made = analyse([summary(records)], Beside(prices=Prices(3.6)))
    html = undrawn(made, tmp_path)
    twin = (tmp_path / "report.md").read_text("utf-8")
    for shown in (section(html), twin):
        assert "joules a million tokens" in shown
        assert "101 kJ" in shown
        assert "0.200 [0.200, 0.200]" in shown


def test_a_rung_over_one_that_is_not_the_one_above_says_so_and_one_launch_too(
    tmp_path: Path,
) -> None:
    arms: list[Json] = [rung(name, seconds) for name, seconds in SECONDS.items()]
    arms[2] = skipped_arm("bf16", "none")
    html = undrawn(analysed([summary(launches(1, "job/ladder", LLAMA, arms))]), tmp_path)
    twin = (tmp_path / "report.md").read_text("utf-8")
    assert '<span class="muted"> one launch</span> <span class="muted">over tf32' in section(html)
    assert "one launch over tf32 |" in twin


def test_of_several_machines_each_is_named_and_linked() -> None:
    arms = [rung(name, seconds) for name, seconds in SECONDS.items()]
    other = launches(3, "job/ladder", LLAMA, arms, context=on_gpu("NVIDIA H100", "9"))
    first = section(undrawn(analysed([summary(climbed()), summary(other, "other")])))
    assert re.findall(r'<p class="trains"><a href="#(m\d)">(.*?)</a>. Llama 1B: 50000', first) == [
        ("m0", "NVIDIA H200"),
        ("m1", "NVIDIA H100"),
    ]


def test_without_a_ladder_there_is_no_such_section(tmp_path: Path) -> None:
    made = launches(3, "a/b", {"model": "gpt2"}, [arm("x", 2e-3), arm("y", 1e-3)])
    html = undrawn(analysed([summary(made)]), tmp_path)
    assert 'id="ladder"' not in html
    assert "What to turn on" not in (tmp_path / "report.md").read_text("utf-8")
