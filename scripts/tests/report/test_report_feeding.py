"""The figures of how training is fed: rungs of a ladder, and storage by size of a block."""

from __future__ import annotations

import numpy as np
import pytest

from gpulift.report import feeding
from gpulift.report.drawing import Drawing
from tests.analysis.machine.test_qualify_feeding import LADDER, ladder
from tests.figures import analysed, machine_views, summary, undrawn
from tests.sample import CPU_CONTEXT, Json, arm, launches

pytestmark = pytest.mark.world


def figures_of(records: list[Json]) -> list[Drawing]:
    one = summary(records)
    return feeding.drawings(machine_views([one]))


def storage(access: str, rates: dict[str, float], operation: str = "read") -> list[Json]:
    size = float(1 << 20)
    arms = [arm(name, size / rate, cost={"bytes": size}) for name, rate in rates.items()]
    case = {"operation": operation, "access": access}
    return launches(2, "ceiling/storage", case, arms, context=CPU_CONTEXT)


def test_a_ladder_has_a_bar_for_each_rung_in_order_and_the_step_alone_as_a_line() -> None:
    (one,) = figures_of(ladder())
    (axes,) = one.figure.axes
    assert [text.get_text() for text in axes.texts[::2]] == list(LADDER)
    bars = [bar.get_path().get_extents(bar.get_patch_transform()).width for bar in axes.patches]
    assert bars == pytest.approx([*LADDER.values()], rel=0.01)
    assert np.asarray(axes.lines[-1].get_xdata()) == pytest.approx(3200)  # 16 images in 5 ms
    assert "naive 396, workers 792" in one.alt
    assert "the step alone (emulated: sleeps 5 ms) takes 3200" in one.alt


def test_storage_is_drawn_by_block_the_smallest_first_and_named_without_colour() -> None:
    (one,) = figures_of(
        [
            *storage("sequential_1m", {"buffered": 1e9, "direct": 2e9}),
            *storage("random_4k", {"buffered": 7e7, "direct": 6e7}),
        ]
    )
    (axes,) = one.figure.axes
    labels = [text.get_text() for text in axes.texts[::2]]
    assert labels == [
        "read, random 4 KiB: buffered",
        "read, random 4 KiB: direct",
        "read, sequential 1 MiB: buffered",
        "read, sequential 1 MiB: direct",
    ]
    assert "read, sequential 1 MiB: direct 1.98 GB/s." in one.alt


def test_what_is_neither_is_not_drawn() -> None:
    plain = launches(2, "a/b", {"access": "mapped"}, [arm("x", 2e-3), arm("y", 1e-3)])
    assert figures_of(plain) == []
    assert figures_of(ladder(notes={})) == []


def test_the_page_has_them_with_their_texts() -> None:
    html = undrawn(analysed([summary(ladder())]))
    part = html[html.index('<h2 id="feeding">') :]
    assert "<figcaption>input/pipeline on AMD EPYC 7B13" in part
