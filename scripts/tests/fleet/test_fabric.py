"""Pairs and groups: whose fault it is."""

from __future__ import annotations

from dataclasses import replace

from gpulift.fleet.fabric import broken_nodes, faults, rates_of_nodes
from gpulift.fleet.kept import Meeting
from gpulift.ground.estimate import Estimate

CASE = "nodes:2/bytes:67108864"


def pair(nodes: str, rate: float = 40e9, why: str = "", kind: str = "pairs") -> Meeting:
    rates = {} if why else {CASE: Estimate(rate, rate / 1.001, rate * 1.001, 3)}
    return Meeting(kind, "+".join(nodes), tuple(nodes), rates, why)


def all_pairs(nodes: str, slow: str = "", rate: float = 20e9) -> list[Meeting]:
    both = [a + b for i, a in enumerate(nodes) for b in nodes[i + 1 :]]
    return [pair(one, rate if set(one) & set(slow) else 40e9) for one in both]


def test_a_node_is_as_fast_as_the_best_of_its_pairs() -> None:
    rates = {one.node: one.value for one in rates_of_nodes(all_pairs("abcde", slow="c"))}
    assert rates == {"a": 40e9, "b": 40e9, "c": 20e9, "d": 40e9, "e": 40e9}


def test_one_pair_does_not_tell_whose_fault_it_is() -> None:
    meetings = [pair("ab"), pair("cd"), pair("ef"), pair("gh", 20e9)]
    assert list(rates_of_nodes(meetings)) == []
    assert [(one.meeting.name, one.told) for one in faults(meetings, ())] == [
        ("g+h", f"-50 % from the median of 4 in {CASE}")
    ]


def test_a_slow_pair_with_a_node_that_explains_it_is_no_fault_of_its_own() -> None:
    meetings = all_pairs("abcdefgh", slow="c")
    assert {one.meeting.nodes for one in faults(meetings, ())} == {
        one.nodes for one in meetings if "c" in one.nodes
    }
    assert list(faults(meetings, {"c"})) == []


def test_a_node_whose_pairs_all_failed_is_broken_where_its_partners_met_others() -> None:
    meetings = [pair("ab"), pair("ac", why="x"), pair("bc", why="x")]
    assert broken_nodes(meetings) == {"c"}
    assert list(faults(meetings, {"c"})) == []


def test_pairs_of_different_models_are_not_held_against_each_other() -> None:
    slower = [replace(one, models="a100") for one in all_pairs("ijkl", slow="ijkl")]
    mixed = [replace(pair(one, 10e9), models="a100, h100") for one in ("ai", "bj", "ak", "bl")]
    meetings = [*all_pairs("abcdefgh"), *slower, *mixed]
    assert list(faults(meetings, ())) == []
    models = [(one.node, one.model, one.value) for one in rates_of_nodes(meetings)]
    assert ("a", "", 40e9) in models
    assert ("a", "a100, h100", 10e9) in models
    assert ("i", "a100", 20e9) in models


def test_a_node_that_others_used_meanwhile_is_not_broken() -> None:
    waited = [replace(pair(nodes, why="queued"), answered=False) for nodes in ("ac", "bc")]
    meetings = [pair("ab"), *waited]
    assert broken_nodes(meetings) == set()
    assert [one.told for one in faults(meetings, ())] == ["failed: queued"] * 2


def test_what_failed_without_a_culprit_is_told_of_its_pair() -> None:
    lone = [pair("ab"), pair("cd", why="exit code 1")]
    assert broken_nodes(lone) == set()
    assert [one.told for one in faults(lone, ())] == ["failed: exit code 1"]
    all_failed = [pair(nodes, why="x") for nodes in ("ab", "bc", "ca")]
    assert broken_nodes(all_failed) == set(), "the fabric, and no node"


def test_a_group_tells_of_a_node_as_a_pair_does() -> None:
    meetings = [pair("abc", kind="groups", why="x"), pair("ad", why="x"), *all_pairs("bcd")]
    assert broken_nodes(meetings) == {"a"}
