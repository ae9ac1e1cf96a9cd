"""Which rows of what GPUs do together are measured, and in what time."""

from __future__ import annotations

import pytest

from gpulift.engine import machine, node, quick
from gpulift.engine.machine import CaseInfo, TechniqueInfo
from tests.conftest import CHECKOUT

UNLIMITED_S = float("inf")


def technique(id: str, cases: list[str], arms: list[str], unavailable: str = "") -> TechniqueInfo:
    listed = tuple(CaseInfo(case, False, "burst") for case in cases)
    trains = id.startswith("distributed/")
    return TechniqueInfo(
        id, "", 2, True, tuple(arms), listed, unavailable=unavailable, whole_steps=trains
    )


LINKS_AND_SIZES = [
    f"gpus:{gpus}/link:{link}/bytes:{size}"
    for gpus in (2, 4, 8)
    for link in ("nvlink", "host")
    for size in (8192, 1 << 20, 64 << 20, 1 << 30)
]
STEPS = [
    f"gpus:{gpus}/model:{model}/scaling:{scaling}/compiled:{compiled}"
    for gpus in (2, 4, 8)
    for model in ("resnet50_256", "gpt2", "llama_1b")
    for scaling in ("weak", "strong")
    for compiled in ("no", "yes")
]
RANKS_AND_LINKS = [
    f"ranks:{ranks}/link:{link}" for ranks in (2, 4, 8) for link in ("nvlink", "gloo")
]
KNOWN = [
    technique(
        "ceiling/peer_copy",
        ["bytes:1048576", "bytes:268435456"],
        ["write", "read", "both_ways", "through_host"],
    ),
    technique("ceiling/collectives", LINKS_AND_SIZES, ["all_reduce", "all_gather"]),
    technique("distributed/data_parallel", STEPS, ["one_gpu", "ddp", "data_parallel", "ddp_gloo"]),
    technique("distributed/straggler", RANKS_AND_LINKS, ["even", "jitter"]),
    technique("ceiling/gemm", ["dtype:bf16"], ["best"]),
]
EVERYTHING = machine.matcher(None)


def names(choice: quick.Choice) -> list[str]:
    return ["/".join(row) for row in choice.rows]


def test_with_time_for_all_every_part_is_there() -> None:
    chosen = node.choose(8, KNOWN, EVERYTHING, UNLIMITED_S)
    rows = names(chosen)
    assert not chosen.left_out
    assert rows[0] == "ceiling/peer_copy/bytes:268435456/write"
    assert "ceiling/peer_copy/bytes:268435456/through_host" in rows, "the host path"
    for link in ("nvlink", "host"):
        assert f"ceiling/collectives/gpus:8/link:{link}/bytes:67108864/all_reduce" in rows
    for model in ("gpt2", "resnet50_256"):
        for arm in ("one_gpu", "ddp"):
            case = f"gpus:8/model:{model}/scaling:weak/compiled:no"
            assert f"distributed/data_parallel/{case}/{arm}" in rows
    assert "distributed/straggler/ranks:8/link:nvlink/even" in rows
    assert not [row for row in rows if "gemm" in row or "gloo" in row or "jitter" in row]


@pytest.mark.parametrize(("gpus", "ranks"), [(2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (16, 8)])
def test_ranks_are_as_many_as_there_are_cases_for(gpus: int, ranks: int) -> None:
    rows = names(node.choose(gpus, KNOWN, EVERYTHING, UNLIMITED_S))
    for technique, axis in (
        ("ceiling/collectives", "gpus"),
        ("distributed/data_parallel", "gpus"),
        ("distributed/straggler", "ranks"),
    ):
        counts = {row.split("/")[2] for row in rows if row.startswith(technique)}
        assert counts == {f"{axis}:{ranks}"}


def test_what_there_is_no_time_for_is_left_out_and_named() -> None:
    little = node.choose(2, KNOWN, EVERYTHING, 31.0)
    assert names(little)[-1] == "ceiling/collectives/gpus:2/link:nvlink/bytes:1073741824/all_reduce"
    left_out = "distributed/data_parallel/gpus:2/model:gpt2/scaling:weak/compiled:no"
    assert left_out in little.left_out
    whole = node.choose(2, KNOWN, EVERYTHING, little.all_s)
    assert not whole.left_out
    assert node.choose(2, KNOWN, EVERYTHING, whole.all_s - 1).left_out
    assert not node.choose(2, KNOWN, EVERYTHING, 1.0).rows


def test_a_training_takes_the_time_of_the_one_launch_that_it_has() -> None:
    training = node.choose(2, KNOWN, machine.matcher("straggler"), UNLIMITED_S)
    assert training.all_s == node.TRAINING_S
    exchange = node.choose(2, KNOWN, machine.matcher("bytes:8192"), UNLIMITED_S)
    assert exchange.all_s == pytest.approx(2 * node.EXCHANGE_S_PER_GPU * quick.LAUNCHES)


@pytest.mark.parametrize("cards", [1, 2, 4, 8])
@pytest.mark.parametrize("budget_s", [120.0, 600.0])
def test_a_quick_qualification_of_several_cards_keeps_to_its_time(
    cards: int, budget_s: float
) -> None:
    shares = node.times(budget_s, cards)
    first_s = quick.FIRST_SHARE * shares.alone_s  # and all at once measure the same again
    assert cards * shares.alone_s + first_s + shares.node_s == pytest.approx(budget_s)
    assert (shares.node_s > 0) == (cards > 1)


@pytest.mark.parametrize("cards", [2, 4])
def test_pairs_and_an_all_reduce_take_their_part_of_the_usual_two_minutes(cards: int) -> None:
    rows = names(node.choose(cards, KNOWN, EVERYTHING, node.times(120.0, cards).node_s))
    assert "ceiling/peer_copy/bytes:268435456/write" in rows
    assert f"ceiling/collectives/gpus:{cards}/link:nvlink/bytes:67108864/all_reduce" in rows


def test_a_filter_and_the_build_choose_among_them() -> None:
    some = names(node.choose(2, KNOWN, machine.matcher("peer_copy.*/write$"), UNLIMITED_S))
    assert some == ["ceiling/peer_copy/bytes:268435456/write"]
    assert not node.choose(2, KNOWN, machine.matcher("gemm"), UNLIMITED_S).rows
    assert not node.choose(2, [], EVERYTHING, UNLIMITED_S).rows
    missing = technique("ceiling/collectives", [], [], unavailable="built without NCCL")
    assert names(node.choose(2, [missing], EVERYTHING, 0.0)) == ["ceiling/collectives//-"]


@pytest.mark.parametrize("part", node.parts(2), ids=lambda part: str(part.name))
def test_parts_are_arms_of_techniques_that_there_are(part: node.Part) -> None:
    sources = list((CHECKOUT / "benches").glob(f"{part.technique}.*"))
    text = "".join(file.read_text("utf-8") for file in sources)
    assert all(f'"{arm}"' in text for arm in part.arms), sources
