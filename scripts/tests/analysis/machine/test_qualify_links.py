"""What several GPUs do together, on made-up records: slow pairs, slow ranks, all-reduces."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.machine.explain import steps_of
from gpulift.analysis.machine.links import judge_node, told
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED, CheckResult
from gpulift.analysis.machine.verdict import exit_code_of
from gpulift.analysis.reference import Conditions, Measured, Reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.ground.errors import FAILED, OK
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from tests.sample import GPU_CONTEXT, Json, arm, launches, record, unmeasured

CARDS = {index: f"{index}a2b3c4d" for index in range(4)}
EXACT: dict[str, Any] = {"noise": 0.0, "launch_noise": 0.0}
SOUND = 395  # GB/s
MIB = 1 << 20


def context() -> Json:
    """Of a node whose GPUs have 450 GB/s of NVLink each."""
    made = copy.deepcopy(GPU_CONTEXT)
    made["gpu"] |= {"nvlink_links": 18, "nvlink_link_bytes_per_s": 25e9}
    made["gpus"] = [{**made["gpu"], "card": card} for card in CARDS.values()]
    return made


def copies(*slow: dict[tuple[int, int], int], gpus: int = 4) -> list[Json]:
    """A record for each launch, with what its pairs differ from sound ones in."""
    size = 256.0 * MIB
    made = []
    for launch, changed in enumerate(slow):
        rates = {(a, b): SOUND for a in range(gpus) for b in range(gpus) if a != b} | changed
        noted = "".join(f"{a} to {b}: {rate} GB/s; " for (a, b), rate in rates.items())
        cost = {"bytes": size, "roof": "gpu_link"}
        arms = [arm("write", size / 395e9, cost=cost, **EXACT)]
        case = {"bytes": int(size)}
        made.append(
            record("ceiling/peer_copy", case, arms, launch, context(), notes={"pairs": noted})
        )
    return made


def summary_of(records: Sequence[Json], reference: Reference | None = None) -> Summary:
    return summarise(Run(Path("node"), tuple(map(read_record, records))), reference)


def judged(records: Sequence[Json], reference: Reference | None = None) -> dict[str, CheckResult]:
    results = judge_node(summary_of(records, reference), CARDS)
    return {result.id: result for result in results}


def test_the_slow_pair_is_named_with_its_cards() -> None:
    found = judged(copies(*3 * [{(0, 3): 340}]))
    slow = found["pairs/0 (0a2b3c4d) to 3 (3a2b3c4d)"]
    assert slow.verdict == FAIL
    assert "-13.9 % from the median of 12 pairs" in slow.reason
    assert "NVLinks of both cards" in slow.remedy
    assert found["pairs"].verdict == PASS
    assert found["pairs"].reason.startswith("11 of 12; the slowest is ")
    assert exit_code_of(list(found.values())) == FAILED
    assert "Siblings: fail: -13.9 %" in "".join(steps_of(slow))


@pytest.mark.parametrize(
    ("rates", "verdict", "words"),
    [
        ([385, 385, 385], INCONCLUSIVE, "-2.5 % from the median of 12 pairs"),
        ([300, 395, 480], INCONCLUSIVE, "not surely 70 % of the computed peak"),
        ([392, 392, 392], PASS, "12 of 12; the slowest is 1 (1a2b3c4d) to 2 (2a2b3c4d), 392 GB/s"),
    ],
)
def test_a_pair_that_is_little_slower_or_only_at_times_does_not_fail(
    rates: list[int], verdict: str, words: str
) -> None:
    found = judged(copies(*({(1, 2): rate} for rate in rates)))
    pair = found.get("pairs/1 (1a2b3c4d) to 2 (2a2b3c4d)", found["pairs"])
    assert pair.verdict == verdict
    assert words in pair.reason


def test_two_gpus_have_no_median_and_are_held_against_their_links() -> None:
    sound = judged(copies(*3 * [{}], gpus=2))
    assert sound["pairs"].verdict == PASS
    assert sound["pairs"].fraction == pytest.approx(395 / 450)
    slow = judged(copies(*3 * [{(1, 0): 100}], gpus=2))["pairs/1 (1a2b3c4d) to 0 (0a2b3c4d)"]
    assert (slow.verdict, slow.kind) == (FAIL, "computed peak")


@pytest.mark.parametrize(("cards", "verdict"), [(2, FAIL), (1, PASS)])
def test_the_reference_judges_where_several_machines_are_behind_it(
    cards: int, verdict: str
) -> None:
    entry = Measured(
        check="roof/gpu_link/burst",
        value=398e9,
        unit="B/s",
        tolerance=0.05,
        tolerance_from="default",
        cards=cards,
        launches=6,
        conditions=Conditions(method="1"),
        source="gpulift:x/y",
        date="2026-11-25",
    )
    known = Reference("H200", {}, {entry.check: entry})
    found = judged(copies(*3 * [{(0, 1): 360, (1, 0): 360}], gpus=2), known)
    pairs = [result for id, result in found.items() if id.startswith("pairs")]
    assert {result.verdict for result in pairs} == {verdict}


def test_one_launch_decides_nothing() -> None:
    assert {r.verdict for id, r in judged(copies({(0, 1): 90})).items() if "pairs" in id} == {
        INCONCLUSIVE
    }


def test_without_links_the_reason_is_that_of_the_record() -> None:
    found = judged(
        [unmeasured("ceiling/peer_copy", {"bytes": 1}, "skipped", "no NVLink between them")]
    )
    (row,) = found.values()
    assert (row.id, row.verdict) == ("case/ceiling/peer_copy/bytes:1", SKIPPED)
    assert "no NVLink between them" in row.reason


def all_reduces(link: str, rates: Mapping[int, float], ranks: int = 2) -> list[Json]:
    made: list[Json] = []
    for size, rate in rates.items():
        roof = "gpu_link" if link == "nvlink" else "gpu_link/host"
        cost = {"bytes": float(size), "roof": roof}
        arms = [arm("all_reduce", size / rate, cost=cost, ranks=ranks, **EXACT)]
        case = {"gpus": ranks, "link": link, "bytes": size}
        made += launches(3, "ceiling/collectives", case, arms, context=context())
    return made


def test_all_reduces_are_told_by_size_and_the_largest_is_judged() -> None:
    over_nvlink = all_reduces("nvlink", {1024 * MIB: 330e9, 8192: 0.9e9, 64 * MIB: 266e9})
    records = [*over_nvlink, *all_reduces("host", {64 * MIB: 27e9})]
    nvlink, host = told(summary_of(records))
    assert nvlink.startswith("All-reduce over NVLink, bus bandwidth by size: 8.00 KiB 900 MB/s, ")
    assert nvlink.endswith("64.0 MiB 266 GB/s, 1.00 GiB 330 GB/s")
    assert host == "All-reduce over the host, bus bandwidth by size: 64.0 MiB 27.0 GB/s"
    found = judged(records)
    assert found["all_reduce/nvlink/1.00 GiB"].verdict == PASS
    assert exit_code_of(list(found.values())) == OK
    slow = judged(all_reduces("nvlink", {64 * MIB: 60e9}))["all_reduce/nvlink/64.0 MiB"]
    assert slow.verdict == FAIL
    small = judged(all_reduces("nvlink", {8192: 0.1e9}))
    assert not [id for id in small if id.startswith("all_reduce")], "the link does not set its pace"


def test_all_reduces_are_those_of_most_gpus() -> None:
    of_four = all_reduces("nvlink", {64 * MIB: 290e9}, ranks=4)
    of_two = all_reduces("nvlink", {64 * MIB: 60e9, 1024 * MIB: 60e9})
    records = [*of_two, *of_four]
    assert told(summary_of(records)) == [
        "All-reduce over NVLink, bus bandwidth by size: 64.0 MiB 290 GB/s"
    ]
    assert judged(records)["all_reduce/nvlink/64.0 MiB"].verdict == PASS


def steps(*seen: tuple[int, float], ranks: int = 2) -> list[Json]:
    """A launch for each: which of the ranks was the slowest, and how many times the fastest's."""
    return [
        record(
            "distributed/straggler",
            {"ranks": ranks, "link": "nvlink"},
            [
                arm(
                    "even",
                    0.045,
                    ranks=ranks,
                    metrics={
                        "slowest_rank": float(rank),
                        "slowest_over_median": (1 + ratio) / 2,
                        "slowest_own_s": 0.04 * ratio,
                        "fastest_own_s": 0.04,
                    },
                )
            ],
            launch,
            context(),
        )
        for launch, (rank, ratio) in enumerate(seen)
    ]


@pytest.mark.parametrize(
    ("ranks", "verdict", "words"),
    [
        ([(1, 1.08), (1, 1.081), (1, 1.079)], FAIL, "rank 1, card 1a2b3c4d: +8.0 % time"),
        ([(0, 1.03), (0, 1.031), (0, 1.029)], INCONCLUSIVE, "rank 0, card 0a2b3c4d: +3.0 % time"),
        ([(1, 1.08), (0, 1.08), (1, 1.08)], PASS, "none is the slowest"),
        ([(1, 1.004), (1, 1.003), (1, 1.005)], PASS, "none is the slowest by more than 1"),
        ([(1, 1.2)], INCONCLUSIVE, "rank 1, card 1a2b3c4d: +20.0 % time"),
    ],
)
def test_the_slow_rank_is_named_where_all_launches_agree(
    ranks: list[tuple[int, float]], verdict: str, words: str
) -> None:
    found = judged(steps(*ranks))["ranks"]
    assert found.verdict == verdict
    assert words in found.reason
    assert bool(found.remedy) == (verdict != PASS)


def test_ranks_are_those_of_the_largest_group() -> None:
    of_two = steps((0, 1.001), (1, 1.001), (0, 1.001))
    of_four = steps((3, 1.08), (3, 1.081), (3, 1.079), ranks=4)
    assert "rank 3" in judged([*of_two, *of_four])["ranks"].reason
