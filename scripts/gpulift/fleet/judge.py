"""A verdict on each node of a fleet: its own, its place among the others, its pairs and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from gpulift.analysis.machine.outliers import Group, family_of
from gpulift.analysis.machine.results import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    SKIPPED,
    Position,
    Rate,
    told_of_products,
)
from gpulift.fleet import fabric, kept
from gpulift.fleet.kept import KeptCard, KeptCheck, KeptNode, Meeting
from gpulift.fleet.logs import NO_ANSWER
from gpulift.ground import errors
from gpulift.ground.text import counted

WORST_FIRST = (FAIL, NO_ANSWER, INCONCLUSIVE, SKIPPED, PASS)
BY_CODE = {errors.OK: PASS, errors.INCONCLUSIVE: INCONCLUSIVE, errors.NOTHING_RAN: SKIPPED}
MOST_NAMED = 3
READERS = 8  # of files, which may be far away


@dataclass(frozen=True)
class NodeVerdict:
    """One node: its verdict, what is behind it, and where it stands."""

    name: str
    rack: str
    verdict: str
    reasons: tuple[str, ...]
    cards: tuple[KeptCard, ...]
    positions: tuple[Position, ...]
    meetings: tuple[Meeting, ...]

    @property
    def nearness(self) -> float | None:
        """Of its worst roof: 1 and more is an outlier, where its own interval agrees."""
        return max((position.nearness for position in self.positions), default=None)


@dataclass(frozen=True)
class Fleet:
    """All nodes, those that fail first, and what they were held against."""

    scheduler: str
    nodes: tuple[NodeVerdict, ...]
    roofs: tuple[Group, ...]
    faults: tuple[fabric.Fault, ...]  # of pairs and groups that no node explains

    @property
    def counts(self) -> Mapping[str, int]:
        """How many nodes have each verdict."""
        found = Counter(node.verdict for node in self.nodes)
        return {word: found[word] for word in WORST_FIRST if found[word]}

    @property
    def products(self) -> str:
        """By which matrix products cards are held against each other; empty where by none."""
        return told_of_products(roof.check for roof in self.roofs)

    @property
    def sentence(self) -> str:
        """`1000 nodes: 1 fail, 2 no answer, 997 pass; 1 fault of pairs and groups`."""
        counts = ", ".join(f"{count} {word}" for word, count in self.counts.items())
        told = f"{counted(len(self.nodes), 'node')}: {counts or 'none'}"
        faults = f"; {counted(len(self.faults), 'fault')} of pairs and groups"
        return f"{told}{faults if self.faults else ''}"

    @property
    def exit_code(self) -> int:
        """1 where a node fails or does not answer, else 5 where one is inconclusive, or a pair or
        group has a fault that no node explains, 77 where nothing could run on any, else 0."""
        words = self.counts
        if FAIL in words or NO_ANSWER in words:
            return errors.FAILED
        if INCONCLUSIVE in words or self.faults:
            return errors.INCONCLUSIVE
        return errors.OK if PASS in words else errors.NOTHING_RAN


def judge_fleet(folder: Path) -> Fleet:
    """All nodes that are expected in the folder. Raises GpuliftError where it holds no fleet."""
    expected = kept.expected(folder)
    with ThreadPoolExecutor(READERS) as readers:
        nodes = list(readers.map(lambda name: kept.kept_node(folder, name), expected.nodes))
    return _judged(nodes, tuple(kept.meetings(folder)), expected)


def _judged(
    nodes: Sequence[KeptNode], meetings: Sequence[Meeting], expected: kept.Expected
) -> Fleet:
    models = {node.name: node.models for node in nodes}
    meetings = [replace(one, models=_of_all(one.nodes, models)) for one in meetings]
    family = family_of([*_roofs(nodes), *fabric.rates_of_nodes(meetings)])
    broken = fabric.broken_nodes(meetings)
    positions: dict[str, list[Position]] = {}
    for position in family.positions:
        positions.setdefault(position.rate.node, []).append(position)
    slow = {
        node
        for node, own in positions.items()
        if any(one.named and one.rate.check.startswith(kept.KINDS) for one in own)
    }
    faults = tuple(fabric.faults(meetings, broken | slow))
    parts: dict[str, list[Meeting]] = {}
    for meeting in meetings:
        for name in meeting.nodes:
            parts.setdefault(name, []).append(meeting)
    shared = _told(faults)
    verdicts = [
        _verdict(
            node,
            expected.labels.get(node.name, ""),
            positions.get(node.name, ()),
            parts.get(node.name, ()),
            node.name in broken,
            shared.get(node.name, ()),
        )
        for node in nodes
    ]
    verdicts.sort(key=lambda one: WORST_FIRST.index(one.verdict))
    return Fleet(expected.scheduler, tuple(verdicts), family.groups, faults)


def _of_all(nodes: Sequence[str], models: Mapping[str, set[str]]) -> str:
    """The models of these nodes."""
    return ", ".join(sorted(set().union(*(models.get(name, ()) for name in nodes))))


def _roofs(nodes: Sequence[KeptNode]) -> Iterator[Rate]:
    for node in nodes:
        for card in node.cards:
            yield from (_rate(node.name, card, check) for check in card.roofs)


def _rate(node: str, card: KeptCard, check: KeptCheck) -> Rate:
    estimate = check.estimate
    assert estimate is not None  # of a roof that was measured
    ends = (estimate.low, estimate.high) if estimate.launches > 1 else (None, None)
    tolerance = (check.reference.tolerance if check.reference else None) or 0.0
    unit, model, value = check.unit, card.model, estimate.value
    return Rate(card.name, check.id, value, *ends, unit, node, model, tolerance=tolerance)


def _told(faults: Sequence[fabric.Fault]) -> Mapping[str, list[str]]:
    """What is said of each node that had a part."""
    told: dict[str, list[str]] = {}
    for fault in faults:
        for node in fault.meeting.nodes:
            told.setdefault(node, []).append(fault.sentence)
    return told


def _verdict(
    node: KeptNode,
    rack: str,
    positions: Sequence[Position],
    meetings: Sequence[Meeting],
    broken: bool,
    shared: Sequence[str],
) -> NodeVerdict:
    """What it `shared` with others and is not its own fault it keeps its verdict in spite of."""
    said = [_own(node), *_among(positions)]
    if broken:
        said.append((FAIL, "each of its pairs and groups failed, and its partners' others did not"))
    said.sort(key=lambda one: WORST_FIRST.index(one[0]))
    return NodeVerdict(
        node.name,
        rack,
        said[0][0],
        tuple(words for words in (*(words for _, words in said), *shared) if words),
        node.cards,
        tuple(positions),
        tuple(meetings),
    )


def _own(node: KeptNode) -> tuple[str, str]:
    """What its own qualification says."""
    if node.code is None:
        return NO_ANSWER, node.why
    if node.why:
        return FAIL, node.why
    if node.code == errors.FAILED:
        failed = list(_failed(node.cards)) or ["measuring"]
        more = f", {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        return FAIL, f"{', '.join(failed[:MOST_NAMED])}{more} failed"
    word = BY_CODE[node.code]
    return word, {SKIPPED: "nothing could run", INCONCLUSIVE: "too much is open"}.get(word, "")


def _failed(cards: Sequence[KeptCard]) -> Iterator[str]:
    for card in cards:
        beginning = f"{card.name}: " if card.name else ""
        yield from (f"{beginning}{one.id}" for one in card.open if one.verdict == FAIL)


def _among(positions: Sequence[Position]) -> Iterator[tuple[str, str]]:
    """Of what it is an outlier in, the furthest below."""
    slow = sorted((one for one in positions if one.named), key=lambda one: one.deviation)
    for furthest in slow[:1]:
        rate = furthest.rate
        card = f"{rate.name}: " if rate.name else ""
        more = f"; an outlier in {len(slow) - 1} more" if len(slow) > 1 else ""
        yield furthest.verdict, f"{card}{rate.check} {furthest.told()}{more}"
