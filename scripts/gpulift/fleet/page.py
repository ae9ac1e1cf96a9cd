"""The page of a fleet: verdicts, those that fail first, racks, and a page for each node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulift.analysis.machine.results import Position
from gpulift.analysis.machine.tables import quantity
from gpulift.analysis.machine.verdict import GLYPHS
from gpulift.fleet.judge import Fleet, NodeVerdict
from gpulift.fleet.kept import Meeting
from gpulift.fleet.logs import NO_ANSWER
from gpulift.ground.whole import write_whole
from gpulift.report import escaping, render, site

FOLDER = "report"
NODES = "nodes"
SIGNS = {**GLYPHS, NO_ANSWER: "∅"}
LEVELS = 4  # of nearness, the last for an outlier
NO_RATE = "x"


@dataclass(frozen=True)
class Line:
    """A node in the table and on the map."""

    node: NodeVerdict
    link: str
    level: str

    @property
    def sign(self) -> str:
        """Of its verdict."""
        return SIGNS[self.node.verdict]


@dataclass(frozen=True)
class RoofLine:
    """A check of all cards of a node, none where one lacks it."""

    check: str
    cells: tuple[Position | None, ...]

    @property
    def median(self) -> str:
        """Of all nodes."""
        position = next(cell for cell in self.cells if cell is not None)
        return quantity(position.median, position.rate.unit)


def write_page(fleet: Fleet, folder: Path) -> Path:
    """Writes the page and those of nodes into `report` of the folder; returns the page's path.
    Raises GpuliftError where it cannot be written."""
    out = folder / FOLDER
    anchors = escaping.anchors((node.name for node in fleet.nodes), "n")
    for node in fleet.nodes:
        text = render.page(_of_node(node), "fleet_node.html.j2")
        write_whole(text, out / NODES / f"{anchors[node.name]}.html", lasting=False)
    lines = [Line(node, f"{NODES}/{anchors[node.name]}.html", _level(node)) for node in fleet.nodes]
    values = {
        "fleet": fleet,
        "lines": lines,
        "racks": _racks(lines),
        "signs": SIGNS,
        "roofs": fleet.roofs,
    }
    front = out / site.FRONT
    write_whole(render.page(values, "fleet.html.j2"), front)
    return front


def _level(node: NodeVerdict) -> str:
    nearness = node.nearness
    if nearness is None or node.verdict == NO_ANSWER:
        return NO_RATE
    if any(position.named for position in node.positions):
        return str(LEVELS)
    return str(min(LEVELS - 1, max(0, int(nearness * LEVELS))))


def _racks(lines: Sequence[Line]) -> Mapping[str, list[Line]]:
    """Nodes by rack, both by name; nothing without labels."""
    racks: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda one: (one.node.rack, one.node.name)):
        racks.setdefault(line.node.rack or "no rack", []).append(line)
    return racks if any(line.node.rack for line in lines) else {}


def _of_node(node: NodeVerdict) -> dict[str, Any]:
    cards = list(dict.fromkeys(position.rate.name for position in node.positions))
    return {
        "node": node,
        "sign": SIGNS[node.verdict],
        "cards": cards,
        "roofs": list(_roofs(node.positions, cards)),
        "open": [(card.name, check) for card in node.cards for check in card.open],
        "meetings": [(one, _told(one)) for one in node.meetings],
        "signs": SIGNS,
    }


def _roofs(positions: Sequence[Position], cards: Sequence[str]) -> Iterator[RoofLine]:
    by_check: dict[str, dict[str, Position]] = {}
    for position in positions:
        by_check.setdefault(position.rate.check, {})[position.rate.name] = position
    for check, own in by_check.items():
        yield RoofLine(check, tuple(own.get(card) for card in cards))


def _told(meeting: Meeting) -> str:
    """Its rates, or why it has none."""
    rates = (f"{case} {quantity(one.value, 'B/s')}" for case, one in meeting.rates.items())
    return meeting.why or ", ".join(rates) or "no all-reduce was measured"
