"""A verdict on each node of a fleet."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

from gpulift.fleet.judge import Fleet, judge_fleet
from gpulift.ground.errors import FAILED, INCONCLUSIVE, NOTHING_RAN, OK
from tests.fleet import made

SOUND = "abcdefgh"


def sound(folder: Path, *others: str) -> Path:
    """A fleet of eight nodes that agree, and of those that a test makes."""
    for number, name in enumerate(SOUND):
        made.node(folder, name, [made.check(made.MEMORY, 4e12 + 1e9 * (number % 3))])
    return made.fleet(folder, [*SOUND, *others])


def verdicts(fleet: Fleet) -> dict[str, str]:
    return {node.name: node.verdict for node in fleet.nodes if node.name not in SOUND}


def reasons(fleet: Fleet, name: str) -> str:
    return "; ".join(next(node.reasons for node in fleet.nodes if node.name == name))


def test_nodes_that_agree_pass(tmp_path: Path) -> None:
    fleet = judge_fleet(sound(tmp_path))
    assert (fleet.sentence, fleet.exit_code) == ("8 nodes: 8 pass", OK)
    assert fleet.scheduler == "slurm"
    assert all(node.positions and node.nearness is not None for node in fleet.nodes)


@pytest.mark.parametrize(
    ("code", "verdict", "exit_code", "words"),
    [
        (1, "fail", FAILED, "health/ecc failed"),
        (5, "inconclusive", INCONCLUSIVE, "too much is open"),
        (70, "fail", FAILED, "exit code 70 without a verdict: measuring"),
        (77, "skipped", OK, "nothing could run"),
        (None, "no answer", FAILED, "did not end: measuring"),
    ],
)
def test_a_node_has_the_verdict_of_its_own_qualification(
    tmp_path: Path, code: int | None, verdict: str, exit_code: int, words: str
) -> None:
    made.node(tmp_path, "x", [made.check("health/ecc", verdict="fail")], code)
    fleet = judge_fleet(sound(tmp_path, "x"))
    assert verdicts(fleet) == {"x": verdict}
    assert fleet.exit_code == exit_code
    assert reasons(fleet, "x") == words
    assert code == 77 or fleet.nodes[0].name == "x", "the worst first"


def test_a_node_that_kept_nothing_is_named(tmp_path: Path) -> None:
    fleet = judge_fleet(sound(tmp_path, "gone"))
    assert fleet.sentence == "9 nodes: 1 no answer, 8 pass"
    assert reasons(fleet, "gone") == "it kept nothing"


def test_nothing_that_could_run_anywhere_is_said(tmp_path: Path) -> None:
    made.node(tmp_path, "a", [], 77)
    assert judge_fleet(made.fleet(tmp_path, ["a"])).exit_code == NOTHING_RAN


def test_of_many_failed_checks_some_are_named_with_their_card(tmp_path: Path) -> None:
    checks = [made.check(f"health/{number}", verdict="fail") for number in range(5)]
    made.node(tmp_path, "x", checks, 1, card="gpu3")
    told = "gpu3: health/0, gpu3: health/1, gpu3: health/2, 2 more failed"
    assert reasons(judge_fleet(sound(tmp_path, "x")), "x") == told


@pytest.mark.parametrize(
    ("rate", "verdict"), [(3.7e12, "fail"), (3.88e12, "inconclusive"), (4.3e12, "pass")]
)
def test_a_node_that_passed_alone_may_stand_out(tmp_path: Path, rate: float, verdict: str) -> None:
    made.node(tmp_path, "x", [made.check(made.MEMORY, rate)], card="gpu0")
    fleet = judge_fleet(sound(tmp_path, "x"))
    assert verdicts(fleet) == {"x": verdict}
    if verdict != "pass":
        off = f"{100 * (rate / 4.001e12 - 1):+.1f} %"
        assert reasons(fleet, "x").startswith(f"gpu0: {made.MEMORY} {off} from the median")


@pytest.mark.parametrize(
    ("fixed", "verdict", "products"),
    [(True, "pass", "of one shape and algorithm"), (False, "fail", "of the shapes that each run")],
)
def test_a_node_is_judged_by_a_fixed_product_where_it_has_one(
    tmp_path: Path, fixed: bool, verdict: str, products: str
) -> None:
    """Its search found another shape."""
    same = [made.check(made.PRODUCT.replace("roof/", "fixed/"), 7e14)] if fixed else []
    for name in (*SOUND, "x"):
        searched = made.check(made.PRODUCT, 7e14 if name == "x" else 8e14)
        made.node(tmp_path, name, [searched, *same])
    fleet = judge_fleet(made.fleet(tmp_path, [*SOUND, "x"]))
    assert verdicts(fleet) == {"x": verdict}
    assert products in fleet.products
    assert [roof.check.partition("/")[0] for roof in fleet.roofs] == ["fixed" if fixed else "roof"]


def test_a_node_whose_pairs_are_slow_fails_and_its_partners_do_not(tmp_path: Path) -> None:
    for number, first in enumerate(SOUND):
        for second in SOUND[number + 1 :]:
            rate = 20e9 if "c" in (first, second) else 40e9
            made.meeting(tmp_path, "pairs", [first, second], rate)
    fleet = judge_fleet(sound(tmp_path))
    assert fleet.sentence == "8 nodes: 1 fail, 7 pass"
    assert fleet.nodes[0].name == "c"
    assert "pairs/nodes:2/bytes:67108864 -50.0 % from the median" in reasons(fleet, "c")
    assert fleet.faults == ()
    assert len(fleet.nodes[0].meetings) == 7


def test_nodes_of_a_pair_that_failed_without_a_culprit_keep_their_verdicts(tmp_path: Path) -> None:
    made.meeting(tmp_path, "pairs", ["a", "b"], None, code=1)
    fleet = judge_fleet(sound(tmp_path))
    assert fleet.sentence == "8 nodes: 8 pass; 1 fault of pairs and groups"
    assert fleet.exit_code == INCONCLUSIVE
    assert (
        "pairs/a+b failed: exit code 1: nothing was said; whose fault it is cannot be told"
        in reasons(fleet, "a")
    )
    assert [one.meeting.name for one in fleet.faults] == ["a+b"]


def test_a_node_of_which_every_pair_failed_is_named(tmp_path: Path) -> None:
    for one, other in ("ab", "bc", "ac"):
        made.meeting(tmp_path, "pairs", [one, other], 40e9)
    for other in "abc":
        made.meeting(tmp_path, "pairs", ["h", other], None, code=1)
    fleet = judge_fleet(sound(tmp_path))
    assert fleet.sentence == "8 nodes: 1 fail, 7 pass"
    assert "each of its pairs and groups failed" in reasons(fleet, "h")


@pytest.mark.parametrize("other", [{"run": "nvidia-a100/x"}, {"method": "another"}])
def test_nodes_of_another_model_or_method_are_not_held_against_these(
    tmp_path: Path, other: dict[str, str]
) -> None:
    slow = "wxyz"
    for name in slow:
        place = made.node(tmp_path, name, [made.check(made.MEMORY, 1e12)])
        file = place / "results" / "qualification.json"
        file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **other}), "utf-8")
    for names, rate in ((SOUND, 40e9), (slow, 10e9)):
        for pair in combinations(names, 2):
            made.meeting(tmp_path, "pairs", pair, rate)
    fleet = judge_fleet(sound(tmp_path, *slow))
    assert fleet.sentence == "12 nodes: 12 pass"
    assert len({roof.model for roof in fleet.roofs}) == 2


def test_a_node_whose_measuring_failed_and_no_check_says_so(tmp_path: Path) -> None:
    made.node(tmp_path, "x", [made.check(made.MEMORY, 4e12)], 1)
    assert reasons(judge_fleet(sound(tmp_path, "x")), "x") == "measuring failed"
