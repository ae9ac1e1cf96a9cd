"""Cards of one machine against each other, with a slow one planted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.machine.measured import measured_checks
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED
from gpulift.analysis.machine.siblings import compare_siblings, judge_siblings
from gpulift.analysis.machine.tables import crowding_table
from gpulift.analysis.summary import Summary, summarise
from gpulift.ground.errors import GpuliftError
from gpulift.ground.terminal import console
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from tests.analysis.machine.test_qualification import entry, reference
from tests.sample import arm, gpu_context, launches

EXACT: dict[str, Any] = {"noise": 0.0, "launch_noise": 0.0}
SIZE = float(1 << 30)
MEMORY, FIXED = "roof/device_memory/burst", "fixed/gemm/bf16/burst"
STEP = "time/launch/cuda_graph/n:1/stream"


def card(
    rate: float = 4e12,
    launch_noise: float = 0.0,
    name: str = "NVIDIA H200",
    step_s: float = 1e-3,
    source: str = "as it is",
    day: str = "2026-11-21",
    **products: float,
) -> Summary:
    """A card whose device memory has this rate in B/s, and its products, of a searched shape or
    the fixed one, theirs in FLOP/s."""
    read = arm(
        "read", SIZE / rate, cost={"bytes": SIZE, "roof": "device_memory"}, noise=0.0,
        launch_noise=launch_noise,
    )  # fmt: skip
    context: dict[str, Any] = {"context": gpu_context(gpu={"name": name})}
    when = {"source": {"gemm.cpp": source}, "started_at": f"{day}T04:00:00Z"}
    made = [
        *launches(3, "ceiling/device_memory", {"bytes": 1 << 30}, [read], **context, **when),
        *launches(
            3, "launch/cuda_graph", {"n": 1}, [arm("stream", step_s, **EXACT)], **context, **when
        ),
    ]
    for product, flops in products.items():
        multiplied = arm("bf16", 1e12 / flops, cost={"flops": 1e12, "roof": "gemm/bf16"}, **EXACT)
        case = {"regime": "burst", "product": product}
        made += launches(3, "ceiling/gemm", case, [multiplied], **context, ceiling=True)
    return summarise(Run(Path("run"), tuple(map(read_record, made))))


def with_records(of: Summary, which: slice) -> Summary:
    return summarise(replace(of.run, records=of.run.records[which]))


KNOWN = reference(entry(MEMORY, 4e12, tolerance=0.05))
THREE = {"a": card(4.0e12), "b": card(4.001e12), "c": card(3.999e12)}
BOTH = {name: card(searched=8e14, fixed=7e14) for name in "abc"}
SEARCHED = {name: card(searched=8e14) for name in "abc"}
OF_MODEL = {name: replace(one, reference=KNOWN) for name, one in THREE.items()}


@pytest.mark.parametrize(
    ("others", "d", "verdict", "outlier", "words"),
    [
        (THREE, card(3.7e12), FAIL, MEMORY, "-7.5 % from the median, "),
        (THREE, card(3.92e12), INCONCLUSIVE, MEMORY, "-2.0 %"),
        (THREE, card(4.4e12), PASS, "", "below those of its 3 siblings"),
        (THREE, card(3.8e12, launch_noise=0.05), PASS, "", ""),
        (THREE, with_records(card(3e12), slice(1)), PASS, "", ""),  # one launch
        (THREE, with_records(card(), slice(3, None)), SKIPPED, "", "no roof of it was measured"),
        (THREE, card(step_s=2e-3), PASS, STEP, ""),  # only roofs fail a card
        (OF_MODEL, replace(card(3.85e12), reference=KNOWN), PASS, "", ""),
        (OF_MODEL, replace(card(3.7e12), reference=KNOWN), FAIL, MEMORY, ""),
        (BOTH, card(searched=7.7e14, fixed=7e14), PASS, "roof/gemm/bf16/burst", "one shape and a"),
        (BOTH, card(searched=8e14, fixed=6.5e14), FAIL, FIXED, FIXED),
        (SEARCHED, card(searched=7e14), FAIL, "roof/gemm/bf16/burst", "roof/gemm/bf16/burst"),
    ],
)
def test_the_slow_card_is_named(
    others: Mapping[str, Summary], d: Summary, verdict: str, outlier: str, words: str
) -> None:
    siblings = compare_siblings({**others, "d": d})
    slow = [(one.rate.name, one.rate.check) for one in siblings.outliers]
    assert slow == ([("d", outlier)] if outlier else [])
    rows = {row.id.removeprefix("siblings/"): row for row in judge_siblings(siblings)}
    assert [rows[name].verdict for name in "abcd"] == [PASS, PASS, PASS, verdict]
    assert words in rows["d"].reason
    assert bool(rows["d"].remedy) == (verdict != PASS)
    if others is SEARCHED:
        assert "shapes that each run searched" in rows["a"].reason


def test_a_fixed_product_is_no_roof() -> None:
    summary = card(searched=8e14, fixed=7e14)
    rates = {check.id: check.estimate.value for check in measured_checks(summary)}
    assert rates["roof/gemm/bf16/burst"] == pytest.approx(8e14)
    assert rates[FIXED] == pytest.approx(7e14)
    alone = with_records(summary, slice(-3, None))
    assert {check.id for check in measured_checks(alone)} == {FIXED}


def test_cards_are_compared_by_the_text_that_most_have() -> None:
    """A benchmark that was changed between two runs is no slow card."""
    cards = {name: card(source="old") for name in "abc"}
    newer = {name: card(3e12, source="new", day="2026-11-28") for name in "def"}
    for others, compared in (({"d": card(2e12, source="new")}, "abc"), (newer, "def")):
        siblings = compare_siblings({**cards, **others})
        assert {one.rate.name for one in siblings.positions} == set(compared)


def test_with_two_cards_no_outlier_can_be_named() -> None:
    siblings = compare_siblings({"a": card(4e12), "b": card(2e12)})
    (row,) = judge_siblings(siblings)
    assert (siblings.outliers, row.verdict) == ((), SKIPPED)
    assert "2 cards: no outlier can be named" in row.reason


def test_what_running_together_costs() -> None:
    alone = {name: card() for name in "abc"}
    siblings = compare_siblings(alone, {**alone, "c": card(3e12, step_s=2e-3)})
    rows = {row.check: row for row in siblings.crowding}
    assert rows[MEMORY].median == pytest.approx(1)
    assert rows[MEMORY].worst_card == "c"
    assert rows[MEMORY].worst == pytest.approx(0.75)
    assert rows[STEP].worst == pytest.approx(0.5)
    slow = {(one.rate.name, one.rate.setting) for one in siblings.outliers}
    assert slow == {("c", "together")}
    screen = console()
    with screen.capture() as shown:
        screen.print(crowding_table(siblings))
    assert "0.750" in shown.get()


def test_cards_of_several_models_are_no_siblings() -> None:
    with pytest.raises(GpuliftError, match="several models: NVIDIA H100, NVIDIA H200"):
        compare_siblings({"a": card(), "b": card(name="NVIDIA H100")})
