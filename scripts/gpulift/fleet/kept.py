"""What the folder of a fleet holds: verdicts of nodes, rates of pairs and of groups.

Of each file only what is judged is read: of ten thousand nodes with eight cards, 6 GB, that takes
half a minute on two cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, TypeVar

import numpy as np
from msgspec import Meta, MsgspecError
from msgspec.json import decode

from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, that_judge_cards
from gpulift.analysis.machine.saved import SIBLINGS_FILE, VERDICT_FILE
from gpulift.analysis.machine.verdict import INFORMING
from gpulift.engine.schema import METHOD
from gpulift.fleet.logs import last_words, why_open
from gpulift.ground import errors
from gpulift.ground.errors import FAILED, NOTHING_RAN, OK, GpuliftError
from gpulift.ground.estimate import Estimate
from gpulift.ground.whole import read_whole
from gpulift.records.files import content_of, record_files
from gpulift.verdicts import stats

FLEET_FILE = "fleet.json"
CODE_FILE = "exit_code"
NODES_FILE = "nodes.txt"
RESULTS = "results"
SCHEMA = 1
ALL_REDUCE = "all_reduce"
KINDS = ("pairs", "groups")

Positive = Annotated[float, Meta(gt=0)]
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Expected:
    """fleet.json: the nodes that a verdict is wanted of, whose racks may be told, and options of
    their qualify."""

    schema: int
    nodes: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    scheduler: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptEstimate:
    """Of a quantity that was measured."""

    value: Positive
    low: Positive | None = None
    high: Positive | None = None
    launches: int = 0


@dataclass(frozen=True, slots=True)
class KeptReference:
    """Of what a check was held against."""

    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class KeptCheck:
    """A row of a qualification."""

    id: str
    verdict: str
    reason: str = ""
    remedy: str = ""
    unit: str = ""
    estimate: KeptEstimate | None = None
    reference: KeptReference | None = None

    @property
    def decides(self) -> bool:
        """Whether it failed or is open, and counts."""
        return self.verdict in (FAIL, INCONCLUSIVE) and not self.id.startswith(INFORMING)


@dataclass(frozen=True, slots=True)
class _Verdicts:
    checks: tuple[KeptCheck, ...]
    run: str = ""
    method: str = METHOD


@dataclass(frozen=True, slots=True)
class KeptCard:
    """Verdicts on a card of a node, or on what several did together; without a name those of a node
    with one card, and of its cards among each other. The model says which method measured it where
    that is another than this gpulift's."""

    name: str
    model: str
    roofs: tuple[KeptCheck, ...]
    open: tuple[KeptCheck, ...]  # what failed or could not be told


@dataclass(frozen=True, slots=True)
class KeptNode:
    """What a node left: its exit code, or why it has none; `why`, too, where it has no verdict."""

    name: str
    code: int | None
    why: str = ""
    cards: tuple[KeptCard, ...] = ()

    @property
    def models(self) -> set[str]:
        """Of its cards."""
        return {card.model for card in self.cards if card.model}


@dataclass(frozen=True, slots=True)
class Meeting:
    """A pair or a group: bus bandwidth of all-reduces by case, or why it failed; one that has not
    answered may have waited for its nodes all the time."""

    kind: str
    name: str
    nodes: tuple[str, ...]
    rates: Mapping[str, Estimate] = field(default_factory=dict)
    why: str = ""
    answered: bool = True
    models: str = ""  # of the cards of its nodes


@dataclass(frozen=True, slots=True)
class _Cost:
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class _Windows:
    device_s: tuple[Positive, ...] = ()
    host_s: tuple[Positive, ...] = ()


@dataclass(frozen=True, slots=True)
class _Arm:
    name: str
    outcome: str
    clock: str = "host"
    steps_per_window: int = 1
    cost: _Cost | None = None
    windows: _Windows = _Windows()


@dataclass(frozen=True, slots=True)
class _Record:
    case_id: str = ""
    arms: tuple[_Arm, ...] = ()


def expected(folder: Path) -> Expected:
    """Raises GpuliftError where fleet.json is missing, broken or of another schema."""
    file = folder / FLEET_FILE
    told = _decoded(read_whole(file), Expected, file)
    if told.schema != SCHEMA:
        raise GpuliftError(f"{file}: has schema {told.schema}; this gpulift reads {SCHEMA}")
    return told


def kept_node(fleet: Path, name: str) -> KeptNode:
    """What a fleet's folder has of a node, which may be nothing."""
    folder = fleet / "nodes" / name
    code = exit_code(folder)
    if code is None:
        return KeptNode(name, None, why_open(folder))
    results = folder / RESULTS
    try:
        cards = tuple(_card(file, results) for file in _files(results))
    except GpuliftError as error:
        return KeptNode(name, None, str(error))
    if code == NOTHING_RAN or (cards and code in (OK, FAILED, errors.INCONCLUSIVE)):
        return KeptNode(name, code, cards=cards)
    why = f"exit code {code} without a verdict: {last_words(folder)}"
    return KeptNode(name, code or None, why, cards)


def meetings(folder: Path) -> Iterator[Meeting]:
    """All pairs, then all groups."""
    for kind in KINDS:
        places = (folder / kind).iterdir() if (folder / kind).is_dir() else ()
        yield from (meeting(one) for one in sorted(places) if (one / NODES_FILE).is_file())


def exit_code(folder: Path) -> int | None:
    """What a node, pair or group ended with; None where it did not end."""
    try:
        return int((folder / CODE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def meeting(folder: Path) -> Meeting:
    """A pair or a group. Raises GpuliftError where its nodes cannot be read."""
    kind = folder.parent.name
    nodes = tuple(read_whole(folder / NODES_FILE).decode("utf-8", "replace").splitlines())
    code = exit_code(folder)
    if code not in (OK, NOTHING_RAN):
        why = why_open(folder) if code is None else f"exit code {code}: {last_words(folder)}"
        return Meeting(kind, folder.name, nodes, why=why, answered=code is not None)
    try:
        return Meeting(kind, folder.name, nodes, _rates(record_files(folder / RESULTS)))
    except GpuliftError as error:
        return Meeting(kind, folder.name, nodes, why=str(error))


def _rates(files: Sequence[Path]) -> dict[str, Estimate]:
    """Over the launches of each case."""
    logs: dict[str, list[float]] = {}
    for file in files:
        for line in content_of(file).splitlines():
            record = _decoded(line, _Record, file)
            rates = (_rate(arm) for arm in record.arms if arm.name == ALL_REDUCE)
            logs.setdefault(record.case_id, []).extend(np.log([one for one in rates if one]))
    return {
        case: stats.over_launches(found, np.asarray(found)) for case, found in logs.items() if found
    }


def _rate(arm: _Arm) -> float:
    """Bytes per second of its median window; 0 of what was not measured."""
    windows = arm.windows.device_s if arm.clock == "device" else arm.windows.host_s
    if arm.outcome != "ok" or not windows or arm.cost is None:
        return 0.0
    return arm.cost.bytes * arm.steps_per_window / median(windows)


def _card(file: Path, results: Path) -> KeptCard:
    kept = _decoded(read_whole(file), _Verdicts, file)
    measured = {one.id: one for one in kept.checks if one.estimate}
    judging = that_judge_cards(measured)
    roofs = (one for id, one in measured.items() if id in judging)
    place = file.parent.relative_to(results).as_posix()
    name = "" if place == "." else place
    decide = tuple(one for one in kept.checks if one.decides)
    model = kept.run.partition("/")[0]
    if model and kept.method != METHOD:
        model = f"{model} by method {kept.method}"
    return KeptCard(name, model, tuple(roofs), decide)


def _files(results: Path) -> Iterator[Path]:
    """Verdicts of a run, or of its parts."""
    for name in (VERDICT_FILE, SIBLINGS_FILE):
        yield from results.glob(name)
        yield from sorted(results.glob(f"*/{name}"))


def _decoded(content: bytes, kind: type[Kind], file: Path) -> Kind:
    try:
        return decode(content, type=kind)
    except (MsgspecError, ValueError, RecursionError) as error:
        raise GpuliftError(f"{file}: cannot be read: {error}") from None
