"""Cards of one machine against each other, with a slow one planted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.machine.checks import measured_checks
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED
from gpulift.analysis.machine.siblings import compare_siblings, judge_siblings
from gpulift.analysis.machine.spread import FLOOR, limits
from gpulift.analysis.machine.tables import crowding_table, siblings_table
from gpulift.analysis.summary import Summary, summarise
from gpulift.ground.errors import GpuliftError
from gpulift.ground.terminal import console
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from tests.analysis.machine.test_qualification import entry, reference
from tests.sample import arm, gpu_context, launches

EXACT: dict[str, Any] = {"noise": 0.0, "launch_noise": 0.0}
SIZE = float(1 << 30)
MEMORY = "roof/device_memory/burst"


def card(
    rate: float,
    launch_noise: float = 0.0,
    name: str = "NVIDIA H200",
    step_s: float = 1e-3,
    source: str = "as it is",
    day: str = "2026-11-21",
) -> Summary:
    """A card whose device memory has this rate in B/s."""
    exact = EXACT | {"launch_noise": launch_noise}
    context = gpu_context(gpu={"name": name})
    read = arm("read", SIZE / rate, cost={"bytes": SIZE, "roof": "device_memory"}, **exact)
    ctx: dict[str, Any] = {
        "context": context,
        "source": {"gemm.cpp": source},
        "started_at": f"{day}T04:00:00Z",
    }
    made = [
        *launches(3, "ceiling/device_memory", {"bytes": 1 << 30}, [read], **ctx),
        *launches(3, "launch/cuda_graph", {"n": 1}, [arm("stream", step_s, **EXACT)], **ctx),
    ]
    return summarise(Run(Path("run"), tuple(read_record(one) for one in made)))


def with_products(card: Summary, searched: float, fixed: float | None = None) -> Summary:
    """The card, whose products of a searched shape, and of the fixed one, have these rates in
    FLOP/s."""
    made: list[Any] = []
    for product, rate in (("searched", searched), ("fixed", fixed)):
        if rate is not None:
            cost = {"flops": 1e12, "roof": "gemm/bf16"}
            one = arm("bf16", 1e12 / rate, cost=cost, **EXACT)
            case = {"regime": "burst", "product": product}
            context = {"context": gpu_context(gpu={"name": "NVIDIA H200"}), "ceiling": True}
            made += launches(3, "ceiling/gemm", case, [one], **context)
    records = (*card.run.records, *(read_record(one) for one in made))
    return summarise(Run(card.run.folder, records))


def test_cards_are_judged_by_a_fixed_product_where_they_have_one() -> None:
    sound = {name: with_products(card(4e12), 8e14, 7e14) for name in "abc"}
    other_shape = compare_siblings({**sound, "d": with_products(card(4e12), 7.7e14, 7e14)})
    verdicts = {one.id: one for one in judge_siblings(other_shape)}
    assert verdicts["siblings/d"].verdict == PASS
    assert "products of one shape and algorithm" in verdicts["siblings/d"].reason
    slow = compare_siblings({**sound, "d": with_products(card(4e12), 8e14, 6.5e14)})
    verdicts = {one.id: one for one in judge_siblings(slow)}
    assert verdicts["siblings/d"].verdict == FAIL
    assert "fixed/gemm/bf16/burst" in verdicts["siblings/d"].reason


def test_without_a_fixed_product_the_searched_one_judges() -> None:
    sound = {name: with_products(card(4e12), 8e14) for name in "abc"}
    found = compare_siblings({**sound, "d": with_products(card(4e12), 7e14)})
    verdicts = {one.id: one for one in judge_siblings(found)}
    assert verdicts["siblings/d"].verdict == FAIL
    assert "roof/gemm/bf16/burst" in verdicts["siblings/d"].reason
    assert "shapes that each run searched" in verdicts["siblings/a"].reason


def test_a_fixed_product_is_no_roof() -> None:
    summary = with_products(card(4e12), 8e14, 7e14)
    rates = {check.id: check.estimate.value for check in measured_checks(summary)}
    assert rates["roof/gemm/bf16/burst"] == pytest.approx(8e14)
    assert rates["fixed/gemm/bf16/burst"] == pytest.approx(7e14)
    alone = summarise(replace(summary.run, records=summary.run.records[-3:]))
    assert {check.id for check in measured_checks(alone)} == {"fixed/gemm/bf16/burst"}


def test_the_slow_card_is_named() -> None:
    cards = {"a": card(4.0e12), "b": card(4.001e12), "c": card(3.999e12), "d": card(3.7e12)}
    found = compare_siblings(cards)
    assert [(one.card, one.check) for one in found.outliers] == [("d", MEMORY)]
    assert found.outliers[0].slower
    assert found.outliers[0].deviation == pytest.approx(3.7 / 3.9995 - 1, rel=1e-3)
    verdicts = {result.id: result.verdict for result in judge_siblings(found)}
    assert verdicts == {
        "siblings/a": PASS,
        "siblings/b": PASS,
        "siblings/c": PASS,
        "siblings/d": FAIL,
    }


def test_a_card_that_is_little_slower_does_not_fail() -> None:
    cards = {"a": card(4.0e12), "b": card(4.001e12), "c": card(3.999e12), "d": card(3.92e12)}
    verdicts = {result.id: result.verdict for result in judge_siblings(compare_siblings(cards))}
    assert verdicts["siblings/d"] == INCONCLUSIVE


def test_cards_are_compared_by_the_text_that_most_have() -> None:
    """A benchmark that was changed between two runs is no slow card."""
    cards = {name: card(4e12, source="old") for name in "abc"}
    found = compare_siblings({**cards, "d": card(2e12, source="new")})
    assert {one.card for one in found.standings} == set("abc")
    newer = {name: card(3e12, source="new", day="2026-11-28") for name in "def"}
    found = compare_siblings({**cards, **newer})
    assert {one.card for one in found.standings} == set("def")


def test_one_launch_does_not_make_a_card_stand_out() -> None:
    cards = {"a": card(4.0e12), "b": card(4.001e12), "c": card(3.999e12)}
    alone = card(3.0e12)
    once = summarise(replace(alone.run, records=alone.run.records[:1]))
    assert not compare_siblings({**cards, "d": once}).outliers


def test_only_roofs_fail_a_card() -> None:
    cards = {name: card(4e12) for name in "abc"}
    found = compare_siblings({**cards, "d": card(4e12, step_s=2e-3)})
    assert [one.card for one in found.outliers] == ["d"]
    assert {one.verdict for one in judge_siblings(found)} == {PASS}


def test_a_card_without_roofs_is_held_against_nothing() -> None:
    bare = card(4.0e12)
    bare = summarise(Run(bare.run.folder, bare.run.records[3:]))
    cards = {"a": card(4.0e12), "b": card(4.001e12), "c": card(3.999e12), "d": bare}
    verdicts = {result.id: result.verdict for result in judge_siblings(compare_siblings(cards))}
    assert verdicts["siblings/d"] == SKIPPED
    assert verdicts["siblings/a"] == PASS


def test_a_card_whose_own_launches_vary_that_much_does_not_stand_out() -> None:
    cards = {"a": card(4.0e12), "b": card(4.001e12), "c": card(3.999e12), "d": card(3.8e12, 0.05)}
    assert not compare_siblings(cards).outliers


def test_identical_cards_have_a_floor_under_their_spread() -> None:
    found = compare_siblings({"a": card(4e12), "b": card(4e12), "c": card(3.97e12)})
    far = {one.card: one.distance for one in found.standings if one.check.startswith("roof")}
    assert far["c"] == pytest.approx(-0.00753 / FLOOR, rel=1e-2)
    assert not found.outliers, "three deviations are not four"


def test_far_but_less_than_a_percent_is_no_outlier() -> None:
    slow = compare_siblings({"a": card(4e12), "b": card(4e12), "c": card(4e12 * 0.9895)})
    assert [one.card for one in slow.outliers] == ["c"]
    less = compare_siblings({"a": card(4e12), "b": card(4e12), "c": card(4e12 * 0.9905)})
    assert not less.outliers


def test_few_cards_stand_out_by_more_than_the_tolerance_of_the_model() -> None:
    known = reference(entry(MEMORY, 4e12, tolerance=0.05))
    rates = {"a": 4.0e12, "b": 4.001e12, "c": 3.999e12, "d": 3.85e12, "e": 3.7e12}
    cards = {name: replace(card(rate), reference=known) for name, rate in rates.items()}
    found = compare_siblings(cards)
    assert [one.card for one in found.outliers] == ["e"], "3.75 % is what sound cards differ by"
    assert {one.least for one in found.standings if one.check == MEMORY} == {0.05}


def test_many_cards_are_one_family() -> None:
    sound = {f"{number:02}": card(4e12 + 1e9 * (number % 5)) for number in range(29)}
    found = compare_siblings({**sound, "slow": card(3.9e12)})
    assert [(one.card, one.check) for one in found.outliers] == [("slow", MEMORY)]
    assert {one.far for one in found.standings} == {limits(30, 60, None).far}


def test_a_faster_card_wants_nothing_done() -> None:
    found = compare_siblings({"a": card(4e12), "b": card(4e12), "c": card(4.4e12)})
    assert not found.outliers
    assert {result.verdict for result in judge_siblings(found)} == {PASS}


def test_a_slower_step_is_a_higher_time() -> None:
    cards = {name: card(4e12, step_s=step) for name, step in (("a", 1e-3), ("b", 1e-3))}
    found = compare_siblings({**cards, "c": card(4e12, step_s=1.2e-3)})
    assert [one.check for one in found.outliers] == ["time/launch/cuda_graph/n:1/stream"]
    assert found.outliers[0].slower


def test_with_two_cards_no_outlier_can_be_named() -> None:
    found = compare_siblings({"a": card(4e12), "b": card(2e12)})
    assert not found.outliers
    result = judge_siblings(found)[0]
    assert result.verdict == SKIPPED
    assert "2 cards: no outlier can be named" in result.reason


def test_what_running_together_costs() -> None:
    alone = {"a": card(4e12), "b": card(4e12), "c": card(4e12)}
    together = {"a": card(4e12), "b": card(4e12), "c": card(3e12, step_s=2e-3)}
    found = compare_siblings(alone, together)
    rows = {row.check: row for row in found.crowding}
    memory = rows[MEMORY]
    assert memory.median == pytest.approx(1)
    assert memory.worst_card == "c"
    assert memory.worst == pytest.approx(0.75)
    assert rows["time/launch/cuda_graph/n:1/stream"].worst == pytest.approx(0.5)
    assert {(one.card, one.setting) for one in found.outliers} == {("c", "together")}
    screen = console()
    with screen.capture() as shown:
        screen.print(siblings_table(found, judge_siblings(found), alone))
        screen.print(crowding_table(found))
    for words in ("Do the 3 cards agree?", "75.0 %", "0.750", "together"):
        assert words in shown.get()


def test_cards_of_several_models_are_no_siblings() -> None:
    with pytest.raises(GpuliftError, match="several models: NVIDIA H100, NVIDIA H200"):
        compare_siblings({"a": card(4e12), "b": card(3e12, name="NVIDIA H100")})
