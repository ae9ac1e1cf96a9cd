"""Pairs in rounds, and groups."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from gpulift.fleet.rounds import GROUP, MOST_ROUNDS, groups_of, rounds_of_pairs


def names(count: int) -> list[str]:
    return [f"node{number}" for number in range(count)]


@pytest.mark.parametrize("count", range(13))
def test_all_rounds_have_each_pair_once(count: int) -> None:
    rounds = rounds_of_pairs(names(count), most=99)
    pairs = [tuple(sorted(pair)) for pairs in rounds for pair in pairs]
    assert sorted(pairs) == sorted(tuple(sorted(pair)) for pair in combinations(names(count), 2))
    assert len(rounds) == (0 if count < 2 else count - 1 if count % 2 == 0 else count)


@pytest.mark.parametrize("count", [2, 3, 8, 31, 1000])
def test_a_node_is_in_one_pair_at_a_time(count: int) -> None:
    for pairs in rounds_of_pairs(names(count)):
        met = [node for pair in pairs for node in pair]
        assert len(met) == len(set(met)) == count - count % 2


def test_a_large_fleet_has_few_rounds_with_partners_that_lie_apart() -> None:
    nodes = names(1000)
    rounds = rounds_of_pairs(nodes)
    assert len(rounds) == MOST_ROUNDS
    met = Counter(frozenset(pair) for pairs in rounds for pair in pairs)
    assert max(met.values()) == 1
    partners = sorted(
        nodes.index(other)
        for pairs in rounds
        for pair in pairs
        if nodes[500] in pair
        for other in set(pair) - {nodes[500]}
    )
    assert min(b - a for a, b in combinations(partners, 2)) >= 200


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(0, []), (2, []), (3, [3]), (8, [8]), (9, [4, 5]), (20, [6, 7, 7]), (17, [5, 6, 6])],
)
def test_groups_are_of_equal_size(count: int, sizes: list[int]) -> None:
    groups = groups_of(names(count))
    assert [len(group) for group in groups] == sizes
    assert [node for group in groups for node in group] == names(count if sizes else 0)
    assert max(sizes, default=0) <= GROUP
