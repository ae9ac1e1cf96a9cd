"""Who is measured with whom: pairs of nodes in rounds, then groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

MOST_ROUNDS = 4  # all pairs of five nodes; of more, partners enough to tell whose fault a pair is
GROUP = 8  # nodes

Pair = tuple[str, str]


def rounds_of_pairs(nodes: Sequence[str], most: int = MOST_ROUNDS) -> list[list[Pair]]:
    """Rounds in each of which a node is in one pair, or, of an odd number, one node in none.

    By the circle method: one place stays, the others turn around it, and no pair comes twice. Where
    that gives more than `most` rounds, those are that many which lie evenly apart, so that partners
    of a node do not stand in one rack.
    """
    if len(nodes) < 2:
        return []
    circle: list[str | None] = [*nodes]
    circle += [None] if len(nodes) % 2 else []
    fixed, *ring = circle
    size = len(ring)  # odd
    count = min(size, most)
    # A turn moves a node's partner by two places: half a turn, modulo the ring, by one.
    half = (size + 1) // 2
    turns = ((number * size // count) * half % size for number in range(count))
    return [_pairs([fixed, *ring[turn:], *ring[:turn]]) for turn in turns]


def groups_of(nodes: Sequence[str], size: int = GROUP) -> list[list[str]]:
    """Neighbours in groups of `size` at most, as equal in size as can be; two nodes are a pair, and
    no group."""
    if len(nodes) < 3:
        return []
    count = -(-len(nodes) // size)
    ends = [number * len(nodes) // count for number in range(count + 1)]
    return [list(nodes[begin:end]) for begin, end in pairwise(ends)]


def _pairs(circle: Sequence[str | None]) -> list[Pair]:
    """The first with the last, the second with the last but one."""
    half = len(circle) // 2
    facing = zip(circle[:half], reversed(circle[half:]), strict=True)
    return [(left, right) for left, right in facing if left is not None and right is not None]
