"""What to turn on: the first section of the page and its figure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from gpulift.analysis.analyse import Beside, analyse
from gpulift.analysis.cost import Prices
from gpulift.analysis.ladder import ladders_of
from gpulift.report import ladder, page, plots
from tests.analysis.test_ladder import GIB, LLAMA, SECONDS, climbed, rung
from tests.figures import analysed, machine_views, on_gpu, summary, undrawn
from tests.sample import Json, arm, launches, skipped_arm

pytestmark = pytest.mark.world


def section(html: str) -> str:
    return html[html.index('<h2 id="ladder">') : html.index('<h2 id="answer">')]


def test_a_model_has_a_bar_for_each_setting_with_its_rate_and_speedup_vs_bf16() -> None:
    (one,) = ladder.views(machine_views([summary(climbed())]))
    (axes,) = one.drawing.figure.axes
    assert [words.get_text() for words in axes.texts[::2]] == [
        "FP32 (default)",
        "TF32",
        "BF16 autocast",
        "torch.compile",
    ]
    assert [words.get_text() for words in axes.texts[1::2]] == [
        "5,000  0.125×",
        "20,000  0.500×",
        "40,000  1.00",
        "50,000  1.25×",
    ]
    bars = [bar.get_path().get_extents(bar.get_patch_transform()).width for bar in axes.patches]
    assert bars == pytest.approx([5000, 20000, 40000, 50000])
    grey = [to_hex(bar.get_facecolor()) == plots.MUTED for bar in axes.patches]
    assert grey == [True, True, False, False]
    assert one.drawing.alt == (
        "Llama 1B on NVIDIA H200, tokens a second, cumulative settings, vs BF16 autocast:"
        " FP32 (default) 5,000 (0.125×), TF32 20,000 (0.500×), BF16 autocast 40,000 (1.00),"
        " torch.compile 50,000 (1.25×)."
    )


def test_a_setting_that_is_less_exact_than_bf16_says_how_far_off_it_is() -> None:
    records = climbed(rung("fp8", 0.1))
    for one in records:
        one["check"] = {"meaning": "gradients of the first step", "tolerance": 0.6}
        for measured, error in zip(one["arms"], (0.0, 0.0, 0.04, 0.05, 0.46), strict=True):
            measured["check_error"] = error
    (made,) = ladder.views(machine_views([summary(records)]))
    (axes,) = made.drawing.figure.axes
    assert axes.texts[-2].get_text() == "FP8: gradients 0.46 off, BF16 autocast's 0.04"
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False] * 4 + [True]
    assert "FP8 80,000 (2.00×; gradients 0.46 off, BF16 autocast's 0.04)" in made.drawing.alt


def test_a_setting_that_frees_memory_and_costs_speed_is_drawn_with_memory() -> None:
    (found,) = ladders_of([summary(climbed(rung("cut_cross_entropy", 0.2, memory=15 * GIB)))])
    speed, memory = ladder.drawing("x", found), ladder.memory_drawing("y", found)
    assert len(speed.figure.axes[0].patches) == len(SECONDS)
    assert speed.alt.endswith("; for memory, and slower: cut cross entropy.")
    (axes,) = memory.figure.axes
    assert [axes.texts[-2].get_text(), axes.texts[-1].get_text()] == [
        "cut cross entropy, speed 1.000×",
        "15.0 GiB  0.75",
    ]
    assert memory.alt.endswith("BF16 autocast 20.0, torch.compile 20.0, cut cross entropy 15.0.")


def test_a_ladder_without_bf16_is_held_against_its_first_rung() -> None:
    arms = [rung("fp16", 0.2), rung("compiled", 0.1)]
    (found,) = ladders_of([summary(launches(3, "job/step", LLAMA, arms))])
    assert (
        "vs fp16: fp16 40,000 (1.00), torch.compile 80,000 (2.00×)."
        in ladder.drawing("x", found).alt
    )


def test_the_page_begins_with_it(tmp_path: Path) -> None:
    lean = rung("lean", 0.2, memory=15 << 30)
    faster = launches(3, "a/b", {"model": "gpt2"}, [arm("x", 2e-3), arm("y", 1e-3)])
    made = analysed([summary([*climbed(lean, skipped_arm("fp8", "no <FP8>")), *faster])])
    page.write(made, tmp_path)
    html, answer = ((tmp_path / name).read_text("utf-8") for name in ("index.html", "report.md"))
    first = section(html)
    assert html.index("<h2") == html.index(first)
    assert "1.25× bf16; tf32 brings 4.00×" in first
    assert "lean costs 20.0 % of the speed and saves 5.00 GiB" in first
    assert "Not measured: fp8 (no &lt;FP8&gt;)" in first
    assert first.count("<svg") == 1
    for word, count in (("faster", 4), ("slower", 3)):  # against the one above, and BF16
        assert len(re.findall(f'class="{word}" href="pages/[^"]*#r-', first)) == count
    assert "joules" not in first
    assert "USD" not in first
    assert "| lean | 40000 [40000, 40000] | ▼ 0.800× [0.800, 0.800] | ≈ 1.000× " in answer
    assert "](figures/settings-0-0.svg)" in answer
    assert (tmp_path / "figures" / "settings-0-0.svg").is_file()
    assert answer.index("## What to turn on") < answer.index("## The answer")


def test_joules_and_money_have_columns_where_they_are_known(tmp_path: Path) -> None:
    records = climbed(power_w=500.0)
    made = analyse([summary(records)], Beside(prices=Prices(3.6)))
    html = undrawn(made, tmp_path)
    answer = (tmp_path / "report.md").read_text("utf-8")
    for shown in (section(html), answer):
        assert "joules a billion tokens" in shown
        assert "101 MJ" in shown
        assert "200 [200, 200]" in shown


def test_a_rung_over_one_that_is_not_the_one_above_says_so_and_one_launch_too(
    tmp_path: Path,
) -> None:
    arms: list[Json] = [rung(name, seconds) for name, seconds in SECONDS.items()]
    arms[2] = skipped_arm("bf16", "none")
    html = undrawn(analysed([summary(launches(1, "job/ladder", LLAMA, arms))]), tmp_path)
    answer = (tmp_path / "report.md").read_text("utf-8")
    assert '<span class="muted"> one launch</span> <span class="muted">over tf32' in section(html)
    assert "one launch over tf32 |" in answer


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
