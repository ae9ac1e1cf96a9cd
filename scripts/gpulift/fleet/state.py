"""The folder of a fleet: what is expected in it, and what it holds already."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gpulift.ground.errors import FAILED, INCONCLUSIVE, NOTHING_RAN, OK, GpuliftError
from gpulift.ground.folders import why_unusable
from gpulift.ground.whole import write_whole

FLEET_FILE = "fleet.json"
SCHEMA = 1
CODE_FILE = "exit_code"
LOG_FILE = "log.txt"
VERDICTS_FILE = "verdicts.txt"
NODES_FILE = "nodes.txt"
RESULTS = "results"
VERDICTS = ("qualification.json", "siblings.json")


@dataclass(frozen=True)
class Expected:
    """The nodes that a verdict is wanted of, whose racks may be told."""

    scheduler: str
    nodes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA


def prepare(folder: Path) -> None:
    """Makes the folder. Raises GpuliftError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GpuliftError(f"{folder}: cannot be made: {error.strerror}") from None
    why = why_unusable(folder)
    if why:
        raise GpuliftError(f"{folder}: is {why}: name another folder", FAILED)


def read_expected(folder: Path, scheduler: str) -> Expected:
    """What an earlier call expected there, or nothing yet. Raises GpuliftError where that was
    another scheduler's fleet, or cannot be read."""
    file = folder / FLEET_FILE
    if not file.exists():
        return Expected(scheduler)
    try:
        held = Expected(**json.loads(file.read_text(encoding="utf-8")))
        expected = replace(held, nodes=tuple(held.nodes))
    except (OSError, ValueError, TypeError):
        raise GpuliftError(f"{file}: cannot be read: name another folder") from None
    if (expected.schema, expected.scheduler) != (SCHEMA, scheduler):
        raise GpuliftError(
            f"{folder}: holds a fleet of {expected.scheduler}, schema {expected.schema}: name"
            " another folder"
        )
    return expected


def write_expected(folder: Path, expected: Expected) -> None:
    """For the next call, and for whoever judges."""
    write_whole(json.dumps(asdict(expected), indent=1) + "\n", folder / FLEET_FILE)


def read_labels(file: Path) -> dict[str, str]:
    """Racks of nodes, from lines such as `node7,rack1`. Raises GpuliftError for others."""
    try:
        rows = [row for row in csv.reader(file.read_text("utf-8").splitlines()) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise GpuliftError(f"--labels {file}: cannot be read: {error}") from None
    wrong = next((row for row in rows if len(row) != 2 or not all(map(str.strip, row))), None)
    if wrong is not None:
        raise GpuliftError(f"--labels {file}: {','.join(wrong)}: give lines of node,rack")
    return {node.strip(): rack.strip() for node, rack in rows}


def node_folder(folder: Path, node: str) -> Path:
    """Of one node."""
    return folder / "nodes" / node


def exit_code(of_one: Path) -> int | None:
    """What a node, pair or group ended with; None where it did not end."""
    try:
        return int((of_one / CODE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def is_qualified(node: Path) -> bool:
    """Whether the node has its verdict; one that ended otherwise is measured again."""
    code = exit_code(node)
    if code == FAILED:  # a full disk is one, too
        return any(True for _ in _verdicts(node / RESULTS))
    return code in (OK, INCONCLUSIVE, NOTHING_RAN)


def is_measured(together: Path) -> bool:
    """Whether a pair or group measured all."""
    return exit_code(together) in (OK, NOTHING_RAN)


def write_nodes(together: Path, nodes: Sequence[str]) -> None:
    """The nodes of a pair or group, a line each."""
    write_whole("".join(f"{node}\n" for node in nodes), together / NODES_FILE, lasting=False)


def write_log(of_one: Path, line: str) -> None:
    """Instead of a log: why there is none."""
    write_whole(f"gpulift: {line}\n", of_one / LOG_FILE, lasting=False)


def _verdicts(results: Path) -> Iterator[Path]:
    for name in VERDICTS:
        yield from results.rglob(name)
