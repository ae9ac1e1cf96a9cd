"""Pairs and groups of nodes: whose fabric is slow, or broken.

A pair is as slow as the slower of its nodes. So a node's own rate is the best of its pairs, and it
is slow where all of them are. A failure or a slow pair that no node explains is told of all that
had a part in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpulift.analysis.machine.outliers import family_of
from gpulift.analysis.machine.results import Rate
from gpulift.fleet.kept import Meeting

LEAST_MEETINGS = 2  # that tell whose fault it is


@dataclass(frozen=True, slots=True)
class Fault:
    """A pair or a group that failed, or that is slow among the others."""

    meeting: Meeting
    told: str

    @property
    def sentence(self) -> str:
        """Of the pair or group, whose nodes keep their own verdicts."""
        of = f"{self.meeting.kind}/{self.meeting.name}"
        return f"{of} {self.told}; whose fault it is cannot be told"


def rates_of_nodes(meetings: Sequence[Meeting]) -> Iterator[Rate]:
    """The best of each node's pairs, and of its groups, in each case that two or more have, with
    nodes of the same models."""
    for (node, kind, models), own in _by_node(meetings).items():
        for case in sorted({case for one in own for case in one.rates}):
            rates = [one.rates[case] for one in own if case in one.rates]
            if len(rates) >= LEAST_MEETINGS:
                best = max(rates, key=lambda rate: rate.value)
                yield Rate.of("", f"{kind}/{case}", best, node=node, model=models)


def broken_nodes(meetings: Sequence[Meeting]) -> set[str]:
    """Nodes of which all pairs and groups that answered failed, two or more, where each partner was
    in one that did not."""
    sound = {node for one in meetings if not one.why for node in one.nodes}
    failed: dict[str, list[Meeting]] = {}
    for one in meetings:
        for node in one.nodes if one.why and one.answered else ():
            failed.setdefault(node, []).append(one)
    return {
        node
        for node, own in failed.items()
        if node not in sound
        and len(own) >= LEAST_MEETINGS
        and all(other in sound for one in own for other in one.nodes if other != node)
    }


def faults(meetings: Sequence[Meeting], explained_by: Collection[str]) -> Iterator[Fault]:
    """Pairs and groups that failed or are slow, and that none of these nodes is in."""
    slow = _slow(meetings)
    for one in meetings:
        told = f"failed: {one.why}" if one.why else slow.get((one.kind, one.name))
        if told and not any(node in explained_by for node in one.nodes):
            yield Fault(one, told)


def _slow(meetings: Sequence[Meeting]) -> Mapping[tuple[str, str], str]:
    """By kind and name: those below the others, whatever their own intervals."""
    rates = (
        Rate(one.name, case, rate.value, rate.value, rate.value, model=one.models, setting=one.kind)
        for one in meetings
        for case, rate in one.rates.items()
    )
    return {
        (one.rate.setting, one.rate.name): (
            f"{100 * one.deviation:.0f} % from the median of {one.count} in {one.rate.check}"
        )
        for one in family_of(rates, tails=False).positions
        if one.named
    }


def _by_node(meetings: Sequence[Meeting]) -> Mapping[tuple[str, str, str], list[Meeting]]:
    found: dict[tuple[str, str, str], list[Meeting]] = {}
    for one in meetings:
        for node in one.nodes:
            found.setdefault((node, one.kind, one.models), []).append(one)
    return found
