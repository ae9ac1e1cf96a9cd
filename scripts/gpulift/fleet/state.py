"""What a call of `fleet` adds to its folder, and what it need not measure again."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from gpulift.analysis.machine.saved import SIBLINGS_FILE, VERDICT_FILE
from gpulift.fleet import kept
from gpulift.fleet.kept import (
    CODE_FILE,
    FLEET_FILE,
    LOG_FILE,
    NODES_FILE,
    RESULTS,
    SCHEMA,
    Expected,
)
from gpulift.ground.errors import (
    FAILED,
    INCONCLUSIVE,
    NOTHING_RAN,
    OK,
    GpuliftError,
    write_error,
)
from gpulift.ground.folders import why_unusable
from gpulift.ground.whole import write_whole


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
    if not (folder / FLEET_FILE).exists():
        return Expected(SCHEMA, (), scheduler=scheduler)
    held = kept.expected(folder)
    if held.scheduler != scheduler:
        raise GpuliftError(f"{folder}: holds a fleet of {held.scheduler}: name another folder")
    return held


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


def is_qualified(node: Path) -> bool:
    """Whether the node has its verdict; one that ended otherwise is measured again."""
    code = kept.exit_code(node)
    if code == FAILED:  # a full disk is one, too
        return any(True for _ in _verdicts(node / RESULTS))
    return code in (OK, INCONCLUSIVE, NOTHING_RAN)


def is_measured(together: Path) -> bool:
    """Whether a pair or group measured all."""
    return kept.exit_code(together) in (OK, NOTHING_RAN)


def write_nodes(together: Path, nodes: Sequence[str]) -> None:
    """The nodes of a pair or group, a line each."""
    write_whole("".join(f"{node}\n" for node in nodes), together / NODES_FILE, lasting=False)


def add_no_answer(of_one: Path, why: str) -> None:
    """Ends its log with the reason, which is its verdict from now on."""
    try:
        of_one.mkdir(parents=True, exist_ok=True)
        (of_one / CODE_FILE).unlink(missing_ok=True)
        with (of_one / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(f"gpulift: {kept.NO_ANSWER}: {why}\n")
    except OSError as error:
        raise write_error(of_one, error) from None


def _verdicts(results: Path) -> Iterator[Path]:
    for name in (VERDICT_FILE, SIBLINGS_FILE):
        yield from results.rglob(name)
